"""The stage `Scenario`: what one case of one file says, checked and resolved, still unevaluated.

Made by :mod:`torch_scenarios.language` from YAML; read by :mod:`torch_scenarios.model.plan` and by
the verdict. Parameters and matrix keys are already constants here and `use` is already inlined;
what depends on a rank, a loop variable or a tensor is one of
:mod:`torch_scenarios.expressions.values`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from torch_scenarios.errors import Mark, Marked, Problem, Source
from torch_scenarios.expressions.values import Expression, Form, PerRank, Selector, names_of
from torch_scenarios.model.needs import StatedNeed
from torch_scenarios.model.versions import VersionRange, release_of
from torch_scenarios.operations.base import IssuedCall, Operation
from torch_scenarios.strategies import Model


class Unchanged(Marked, frozen=True, kw_only=True):
    """The word `unchanged`: what the rank held before the step (at the top: in the beginning).

        - ranks: rank != 0
          reduce: {tensor: x, dst: 0}
          expect: {x: unchanged}          where torch promises nothing, this asks for a promise

    It is a class and no value, since what it means is known only when the step is taken.
    """


class ElapsedBounds(Marked, frozen=True, kw_only=True):
    """Seconds since the scenario began, on that rank; None is no bound.

        expect: {elapsed: {min: 1s}}      ->   ElapsedBounds(min_s=Constant(1.0), max_s=None)

    Virtual time in the analysis, where only `sleep` passes it; real time in a run. So a lower bound
    is what a program may rely on, and an upper one has to leave room for a slow machine (decision
    9).
    """

    min_s: Form | None = None
    max_s: Form | None = None


class RaiseSpec(Marked, frozen=True, kw_only=True):
    """Kinds of which any will do; empty means that nothing may be raised (`none`).

    `contains` asks for a substring of the backend's own message.

    >>> RaiseSpec(kinds=("timeout", "peer_lost")).contains is None
    True

    A kind is ours (:data:`torch_scenarios.vocabulary.RAISE_KINDS`), for backends share no class of
    exception: a lost peer is a `RuntimeError` of Gloo, and a `DistBackendError` of NCCL.
    """

    kinds: tuple[str, ...]
    contains: str | None = None


class ValueExpectation(Marked, frozen=True, kw_only=True):
    """`key` must be `wanted`: key is a name or an expression, evaluated on the rank that is asked.

    `wanted` is a form, :class:`Unchanged`, or a PerRank of these.

        expect: {x: [3.0, 3.0], sum(y): 6}        two of them, with the keys `x` and `sum(y)`
    """

    key: Expression
    wanted: Form | Unchanged | PerRank[Form | Unchanged]


class Expectation(Marked, frozen=True, kw_only=True):
    """What must hold right after a step, on every rank that took it.

    >>> Expectation() == Expectation(values=(), raises=None)
    True

    "Right after" is on that rank: others may be anywhere by then. Of an asynchronous call it is
    right after the call, not after its wait, so that to expect the result there is a `buffer_race`.
    """

    values: tuple[ValueExpectation, ...] = ()
    elapsed: ElapsedBounds | PerRank[ElapsedBounds] | None = None
    raises: RaiseSpec | PerRank[RaiseSpec] | None = None


class Communicates(Marked, frozen=True, kw_only=True):
    """The calls of all steps of a model, in order; on one group, where one is named.

    The group of a :class:`IssuedCall` that is stated is empty: lists are by group, or for all
    together.
    """

    model: str
    calls: tuple[IssuedCall, ...] | PerRank[tuple[IssuedCall, ...]]
    group: str | None = None


class Bounds(Marked, frozen=True, kw_only=True):
    """Between which values a number must be, both among them; None is no bound.

    >>> Bounds(low=2.0)
    Bounds(low=2.0, high=None)
    """

    low: float | None = None
    high: float | None = None


class RankBounds(Marked, frozen=True, kw_only=True):
    """The same as :class:`Bounds` in forms, for each rank its own.

    sent_by: {0: 0, else: 4096 * (world_size - 1)}
    """

    low: Form | None = None
    high: Form | None = None


class TimeExpectation(Marked, frozen=True, kw_only=True):
    """Between which times, in microseconds, a forecast must be on a topology: a name, or a file.

        expect: {cost: {time: {max: 60us, on: h100-8x400g}}}

    A forecast is of one machine and has an error that is published with it. It is no property of
    the program, which is why the machine is stated with the time.
    """

    on: str
    low: float | None = None
    high: float | None = None


class CostExpectation(Marked, frozen=True, kw_only=True):
    """What a program costs on any machine; what is None was not stated.

    `sent` are the bytes of the rank that sends most, `sent_by` those of each rank. `time` is the
    one that depends on a machine.
    """

    rounds: Bounds | None = None
    messages: Bounds | None = None
    sent: Bounds | None = None
    sent_by: PerRank[RankBounds] | None = None
    time: TimeExpectation | None = None


class FinalExpectation(Marked, frozen=True, kw_only=True):
    """The top-level `expect`. A field that is None, or empty, was not stated.

    Any of `outcomes` will do; where none is stated that is `completes`. `blocked` and `dies` map a
    selector to text (a step's name or label; a signal name or `exit N`). `sections` are the
    conditions under which something differs, in the order in which they are laid over the general
    expectation; `merged` has, for the numbers of those that hold together, a complete
    FinalExpectation. No numbers hold for this one itself. `places` are those of what single keys
    state.
    """

    apart = ("mark", "places")

    outcomes: tuple[str, ...] = ()
    blocked: PerRank[str] | None = None
    diagnoses: tuple[str, ...] = ()
    dies: PerRank[str] | None = None
    within_s: float | None = None
    cost: CostExpectation | None = None
    at_end: Expectation = Expectation()
    communicates: tuple[Communicates, ...] = ()
    sections: tuple[Section, ...] = ()
    merged: Mapping[tuple[int, ...], FinalExpectation] = field(default_factory=dict)
    places: Mapping[str, Mark] = field(default_factory=dict)

    def place_of(self, key: str) -> Mark | None:
        """Return the place of what a key states; of the whole where the key is left out."""
        return self.places.get(key) or self.mark

    @property
    def ends(self) -> tuple[str, ...]:
        """The outcomes of which any will do."""
        return self.outcomes or ("completes",)

    def on(self, backend: str | None, torch: str | None = None) -> FinalExpectation:
        """Return what is expected on `backend`, with that version of torch (None: with any)."""
        holding = self.find_holding(backend, torch)
        return self.merged[holding] if holding else self

    def find_holding(self, backend: str | None, torch: str | None = None) -> tuple[int, ...]:
        """Return the numbers of the sections that hold together."""
        return tuple(
            number for number, each in enumerate(self.sections) if each.holds(backend, torch)
        )

    @property
    def backends(self) -> tuple[str, ...]:
        """The backends that a section names, in order of their names."""
        return tuple(sorted({each.backend for each in self.sections if each.backend}))

    @property
    def versions(self) -> tuple[str | None, ...]:
        """Versions of torch of which one meets each set of conditions; None is any version."""
        return versions_between(self.sections)


class Section(Struct, frozen=True, kw_only=True):
    """The condition of a section of the top-level `expect`; what is None asks nothing.

    >>> nccl = Section(backend="nccl")
    >>> nccl.holds("nccl", None), nccl.holds("gloo", None), nccl.holds(None, None)
    (True, False, False)

    An unknown backend meets no condition on one: what is stated for NCCL is not asked of a run
    without a name.
    """

    backend: str | None = None
    torch: VersionRange | None = None

    def holds(self, backend: str | None, torch: str | None) -> bool:
        """Return whether a backend and a version of torch meet it; an unknown one does not."""
        meant = self.backend is None or self.backend == backend
        return meant and (self.torch is None or (torch is not None and self.torch.holds(torch)))


def versions_between(sections: Iterable[Section]) -> tuple[str | None, ...]:
    """Return None and one version for every set of conditions that some version meets."""
    ranges = [each.torch for each in sections if each.torch is not None]
    edges = {edge for each in ranges for edge in each.edges()} | ({"0"} if ranges else set())
    found = {
        tuple(each.holds(edge) for each in ranges): edge
        for edge in sorted(edges, key=release_of, reverse=True)
    }
    return (None, *sorted(found.values(), key=release_of))


class GroupSpec(Marked, frozen=True, kw_only=True):
    """One entry of `groups:`. Exactly one of the five forms is not None.

    `ranks` a selector-like form (list or expression); `partition` a form that yields lists of
    ranks; `size` of `new_subgroups`; `shape` with `dims` of `init_device_mesh`. A mesh with
    a name to `flatten` is known to torch as one dimension of that name as well.
    """

    name: str
    ranks: Form | None = None
    partition: Form | None = None
    size: Form | None = None
    shape: Form | None = None
    dims: tuple[str, ...] = ()
    flatten: str | None = None
    timeout_s: float | None = None
    backend: str | None = None
    sort_ranks: bool = True


class Step(Marked, frozen=True, kw_only=True):
    """One step of the list, or (with `body`) a `for` over further steps.

    `index` numbers the steps of a scenario in the order of the file after `use` was inlined,
    depth first, from 0. `arguments` maps an argument's name (torch's) to its form; for `compute`
    to the assigned names in order. A step that is an `expect` alone has `operation` None.
    `mark` is the place of its call, `whole` that of its first key, or of all of it in braces.
    """

    apart = ("mark", "whole")

    index: int
    operation: Operation | None = None
    arguments: Mapping[str, Form] = field(default_factory=dict)
    name: str | None = None
    ranks: Selector | None = None
    handle: str | None = None
    #: of a handle that is another one for each value
    handle_index: Form | None = None
    expect: Expectation | None = None
    variable: str | None = None
    over: Form | None = None
    #: of a loop: the numbers that `let` names in its body, which end with each turn
    numbers: tuple[str, ...] = ()
    body: tuple[Step, ...] = ()
    #: where the step stands in the program that it was recorded from: words, on each rank
    at: str | PerRank[str] | None = None
    whole: Mark | None = None


class Function(Marked, frozen=True, kw_only=True):
    """One entry of `functions:`: what one rank may ask of another.

    It sets tensors of the rank that runs it, in order, and returns a copy of a value. `parts` has,
    by the keys of `sets`, the parts of tensors that are stored into. `takes_s` seconds pass before.
    """

    name: str
    arguments: tuple[str, ...] = ()
    sets: Mapping[str, Form] = field(default_factory=dict)
    parts: Mapping[str, Expression] = field(default_factory=dict)
    returns: Form | None = None
    takes_s: float = 0.0

    @property
    def reads(self) -> frozenset[str]:
        """The names of the rank that runs it which its expressions look at."""
        forms = [*self.sets.values(), *self.parts.values(), self.returns]
        found = (names_of(form) for form in forms if form is not None)
        return frozenset().union(*found) - {*self.arguments}

    @property
    def writes(self) -> frozenset[str]:
        """The names of the rank that runs it which it stores into, whole or in part."""
        roots = {key: form.roots for key, form in self.parts.items()}
        return frozenset().union(*(roots.get(key, {key}) for key in self.sets))


class Scenario(Marked, frozen=True, kw_only=True):
    """One case: a file, one combination of its matrix, its parameters bound.

    `warnings` is what the reader of the file noticed, and refuses nothing. The program of the ranks
    in `truncated` goes on beyond what is written.
    """

    apart = ("warnings", "mark")

    source: Source
    name: str
    case: str
    world_size: int
    description: str = ""
    tags: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    backends: tuple[str, ...] | None = None
    needs: tuple[StatedNeed, ...] = ()
    torch: VersionRange | None = None
    timeout_s: float = 10.0
    debug: str = "off"
    groups: tuple[GroupSpec, ...] = ()
    tensors: Mapping[str, Form] = field(default_factory=dict)
    objects: Mapping[str, Form] = field(default_factory=dict)
    models: Mapping[str, Model] = field(default_factory=dict)
    functions: Mapping[str, Function] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    #: whether an expression reads `backend`: the value is that of the constant
    reads_backend: bool = False
    truncated: frozenset[int] = frozenset()
    expect: FinalExpectation = FinalExpectation()
    #: whether a run keeps what steps write: where it is only timed, that is its own noise
    keeps: bool = True
    warnings: tuple[Problem, ...] = ()

    @property
    def file(self) -> str:
        """The path of its file, as it is named."""
        return self.source.path

    @property
    def lacking(self) -> str | None:
        """Why it is not analysed here although torch may know what it asks for, or None."""
        return next(filter(None, (each.lacking for each in self.models.values())), None)

    def not_for(self, torch: str) -> str | None:
        """Return why it has no meaning with a version of torch; None where it has."""
        if self.torch is not None and not self.torch.holds(torch):
            return f"it is meant for torch {self.torch}; this is torch {torch}"
        for model in self.models.values():
            for strategy in model.parallel:
                for versions, why in strategy.broken.items():
                    if VersionRange.read(versions).holds(torch):
                        return f"this is torch {torch}: {why}"
        return None


def steps_of(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return every step in `steps`, bodies included, in order of their index."""
    found: list[Step] = []
    for step in steps:
        found.append(step)
        found.extend(steps_of(step.body))
    return tuple(found)


def find_stated(scenario: Scenario) -> frozenset[str]:
    """Return the names that an expectation reads, beside any step or at the end, on any backend."""
    finals = (scenario.expect, *scenario.expect.merged.values())
    stated = [step.expect for step in steps_of(scenario.steps) if step.expect is not None]
    found: set[str] = set()
    for expect in (*stated, *(final.at_end for final in finals)):
        for value in expect.values:
            found |= value.key.names | value.key.before
    return frozenset(found)
