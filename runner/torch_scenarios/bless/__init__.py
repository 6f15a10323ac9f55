"""Bless: fill in what a file expects, from the reference where the run agrees with it.

    text -> Draft (open places filled with stand-ins) -> answers of the reference -> edits
         -> Proposal (the new text, proved without a run) -> confirmed by runs -> written

Only values are blessed, never how a program ends: `outcome`, `blocked`, `diagnosis`, `dies` and
`raises` are for the author to state. A program that hangs, crashes or raises without saying so is
refused; one that says so, and does, keeps what holds until then.
"""

from __future__ import annotations

from torch_scenarios.bless.draft import CODES, NotBlessedError, Objection
from torch_scenarios.bless.rewrite import Proposal, confirm, propose, write

__all__ = ["CODES", "NotBlessedError", "Objection", "Proposal", "confirm", "propose", "write"]
