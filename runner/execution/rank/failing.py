"""What a call raised: noted in the rank's own words, unless the supervisor broke the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.execution.errors import failure_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from runner.execution.rank.board import Record
    from runner.trace import Failure

#: kinds of failure after which a group's connections are gone
CLOSING = frozenset({"timeout", "peer_lost", "aborted"})


class Broken(Exception):  # noqa: N818 -- not a fault: the supervisor asked for it
    """The stuck call was broken from outside, after the verdict; the account is given already."""


class Failures:
    """What went wrong on one rank."""

    def __init__(self, broken: Callable[[], bool], mend: Callable[[BaseException], None]) -> None:
        """Know of nothing.

        `broken` tells whether the supervisor broke a call; `mend` takes back what a call that
        raised left behind in the backend.
        """
        self.broken = broken
        self._mend = mend
        #: a call failed in a way that closed connections: the peers cannot go on either
        self.lost = False

    def note(self, record: Record, error: BaseException) -> Failure:
        """Note what a step raised; raises Broken where the supervisor is why it did."""
        if record.site.communicates:
            self._mend(error)
            if self.broken():
                raise Broken from error
        record.failure = failure = failure_of(error)
        self.lost = self.lost or failure.kinds[0] in CLOSING
        return failure
