"""A fault that the simulation came across, before it is put into words for the whole program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.reference.waits import Edge


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One sighting of a fault. Sightings of the same `kind` are one diagnosis.

    `name` is one of :data:`runner.vocabulary.DIAGNOSES`; `index` and `iteration` the step where it
    shows; `ranks` those it concerns, `odd` the rank that most others disagree with.
    `path` are the waits that explain it, edge by edge. An `optional` one follows from a fault that
    the scenario itself asks for.
    """

    name: str
    prose: str
    kind: str
    index: int = -1
    iteration: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    odd: tuple[int, ...] = ()
    also: tuple[str, ...] = ()
    optional: bool = False
    path: tuple[Edge, ...] = ()
