"""The kinds of errors that `raises:` states."""

from __future__ import annotations

from runner.explanations.entry import Explanation


def _kind(code: str, what: str, why: str) -> Explanation:
    return Explanation(code=code, sort="kind of error", what=what, why=why)


KINDS: tuple[Explanation, ...] = (
    _kind(
        "timeout",
        "A call gave up after the timeout of its group, or its own.",
        "Somebody whom it needed never came, or came too late. The group is unusable afterwards.",
    ),
    _kind(
        "peer_lost",
        "The connection to another rank was closed or reset.",
        "The other rank died, ended early, or gave up waiting itself: after one rank's timeout its "
        "peers may see either kind, so state `raises: [timeout, peer_lost]`.",
    ),
    _kind(
        "unsupported",
        "The backend cannot do this: an operation, a reduce op or a dtype that it lacks.",
        "What a backend can do is no part of the semantics; only the run can confirm it.",
    ),
    _kind(
        "not_member",
        "The rank is not in the group that it uses.",
        "torch gives a rank outside a group no handle that messages could be sent with.",
    ),
    _kind(
        "aborted",
        "The operation, or its communicator, was aborted from outside.",
        "A watchdog or another thread ended it, mostly after a failure elsewhere.",
    ),
    _kind(
        "out_of_memory",
        "There was no memory left, on the device or on the host.",
        "It says nothing about the program's communication: unless the scenario states it, such a "
        "run is inconclusive.",
    ),
    _kind(
        "other",
        "An error of no other kind, such as `fault: {raise: message}`.",
        'State a part of its words with `raises: {other: "words"}`.',
    ),
)
