"""What the doctor says of one thing on one host: a status, what is so, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

#: `ok`; `note`: it may surprise, and nothing fails by it; `wrong`: a run fails, or is not what it
#: seems; `untested`: it could not be looked at
Status: TypeAlias = Literal["ok", "note", "wrong", "untested"]

_Text: TypeAlias = Annotated[str, Meta(max_length=4096)]

FAILS, UNTESTED = 1, 3


class Check(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that was looked at.

    >>> str(Check(name="port", status="wrong", message="port 80 is in use", fix="name another"))
    'wrong     port         port 80 is in use; name another'
    """

    name: _Text
    status: Status
    message: _Text
    #: what to do; nothing where nothing has to be done
    fix: _Text = ""

    def __str__(self) -> str:
        """Return the line that is printed."""
        return f"{self.status:9} {self.name:12} {'; '.join(filter(None, (self.message, self.fix)))}"


def fine(name: str, message: str) -> Check:
    """Return a check that found nothing."""
    return Check(name=name, status="ok", message=message)


def note(name: str, message: str, fix: str = "") -> Check:
    """Return a check of what may surprise."""
    return Check(name=name, status="note", message=message, fix=fix)


def wrong(name: str, message: str, fix: str) -> Check:
    """Return a check that found something wrong, and what to do."""
    return Check(name=name, status="wrong", message=message, fix=fix)


def report_untested(name: str, message: str, fix: str = "") -> Check:
    """Return a check that could not be made."""
    return Check(name=name, status="untested", message=message, fix=fix)


def exit_code(checks: Iterable[Check]) -> int:
    """Return 0 where all is right, 1 where something is wrong, 3 where something is not known."""
    found = {check.status for check in checks}
    return FAILS if "wrong" in found else UNTESTED if "untested" in found else 0
