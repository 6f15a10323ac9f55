"""The engine that takes a step for all ranks at once returns what the other one returns."""

from __future__ import annotations

import contextlib
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from msgspec.structs import replace
from programs import CORRECT, WRONG, Program
from random_programs import programs
from sampling import strides
from spmd_programs import spmd_programs
from traces import departures, run_together

import torch_scenarios
from torch_scenarios.errors import ScenarioError
from torch_scenarios.language import discover
from torch_scenarios.limits import DEFAULT, Limits
from torch_scenarios.model.scenario import FinalExpectation
from torch_scenarios.model.traits import TRAITS
from torch_scenarios.reference.backends import forecast
from torch_scenarios.reference.matching import HistoryMissingError
from torch_scenarios.reference.simulate import walk
from torch_scenarios.reference.vector import CohortError, CohortRun, take_together
from torch_scenarios.reference.vector.record import Batch, ColumnEvents

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.scenario import Scenario
    from torch_scenarios.model.trace import Event, Trace

CORPUS = Path(__file__).parents[2] / "scenarios"
FOLDERS = sorted(path.name for path in CORPUS.iterdir() if path.is_dir())

COUNT = int(os.environ.get("RANDOM_PROGRAMS", "40"))
BOUNDED = settings(
    max_examples=COUNT,
    deadline=None,
    derandomize=COUNT <= 100,
    database=None,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vector")


def case_of(text: str, folder: Path) -> Scenario:
    path = folder / "program.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    return scenario


def walked_on(text: str, folder: Path) -> Trace:
    """Return what cohorts and the walk from there have of a program: what the walk alone has."""
    plan = torch_scenarios.plan(case_of(text, folder))
    found = take_together(plan, DEFAULT)
    assert not isinstance(found, CohortRun)
    trace = walk(plan, DEFAULT, found)
    assert departures(trace, walk(plan, DEFAULT)) == []
    return trace


#: what to do where the two are not the same
ENGINES = (
    "taken together (reference/vector) the ranks come to something else than walked: what one "
    "engine finds the other must find, or cohorts leave that step (`leave`) to the walk"
)


def agrees(plan: Plan) -> bool:
    """Compare the engines; False where the ranks do not get to the end together.

    Where they get to somewhere together, and each walks on from there, that is compared as well.
    """
    try:
        found = take_together(plan, DEFAULT)
    except CohortError:
        return False
    if isinstance(found, CohortRun):
        assert departures(found.trace, walk(plan, DEFAULT)) == [], ENGINES
        for backend, traits in TRAITS.items():
            walks = forecast(plan, found.trace, backend, DEFAULT)
            if found.is_untouched_by(traits):
                assert walks is None, backend
            else:
                known = forecast(plan, found.trace, backend, DEFAULT, found)
                assert (known is None) == (walks is None), backend
                if known is not None and walks is not None:
                    assert departures(known, walks) == []
                    assert known.because == walks.because
        return True
    try:
        expected = walk(plan, DEFAULT)
    except ScenarioError:
        with (
            contextlib.suppress(CohortError, HistoryMissingError),
            pytest.raises(ScenarioError),
        ):
            walk(plan, DEFAULT, found)
        return False
    with contextlib.suppress(CohortError, HistoryMissingError):
        trace = walk(plan, DEFAULT, found)
        assert departures(trace, expected) == [], ENGINES
        if expected.outcome == "completes":
            assert trace.traffic is not None
            assert expected.traffic is not None
            assert repr(trace.traffic.structure) == repr(expected.traffic.structure)
    return False


@pytest.mark.parametrize("stride", strides(13))
@pytest.mark.parametrize("name", FOLDERS)
def test_the_engines_agree_on_the_corpus(name: str, stride: int) -> None:
    for path in list(discover([str(CORPUS / name)]))[::stride]:
        for scenario in torch_scenarios.load(path):
            agrees(torch_scenarios.plan(scenario))


@pytest.mark.parametrize("stride", strides(3))
def test_most_of_the_right_programs_of_the_corpus_are_taken_at_once(stride: int) -> None:
    taken = [
        agrees(torch_scenarios.plan(scenario))
        for name in ("p2p", "collectives", "compute", "barrier")
        for path in list(discover([str(CORPUS / name)]))[::stride]
        for scenario in torch_scenarios.load(path)
        if scenario.expect.ends == ("completes",)
    ]
    assert sum(taken) > len(taken) / 2


@pytest.mark.parametrize("stride", strides(6))
def test_the_wrong_programs_of_the_corpus_are_walked_to_their_end(stride: int) -> None:
    taken = []
    for path in list(discover([str(CORPUS)]))[::stride]:
        for scenario in torch_scenarios.load(path):
            if scenario.expect.diagnoses:
                unstated = replace(scenario, expect=FinalExpectation())
                taken += [scenario.case] if agrees(torch_scenarios.plan(unstated)) else []
    assert taken == []


@pytest.mark.parametrize("program", [*WRONG, *CORRECT], ids=lambda program: program.name)
def test_the_engines_agree_on_small_programs(program: Program, folder: Path) -> None:
    taken = agrees(torch_scenarios.plan(case_of(program.text, folder)))
    assert not (taken and program.diagnoses)


def test_the_engines_name_the_same_odd_rank(folder: Path) -> None:
    """Rank 0 comes first when each rank is walked, and last when ranks 1 and 2 come together."""
    text = (
        'world_size: 3\ntensors: {x: "arange(3)"}\nsteps:\n'
        "- {ranks: [1, 2], broadcast: {tensor: x, src: 0}}\n"
        "- {broadcast: {tensor: x, src: 1}}\n"
    )
    plan = torch_scenarios.plan(case_of(text, folder))
    assert not agrees(plan)
    found = {each.name: each.odd for each in walk(plan, DEFAULT).diagnoses}
    assert found == {"root_mismatch": (0,), "missing_participant": (0,)}


def test_what_ranks_did_together_is_forgotten_where_a_later_one_disagrees(folder: Path) -> None:
    """Ranks 0 and 2 pass together before rank 1 comes; walked, rank 2 comes after both."""
    text = (
        'world_size: 3\ntensors: {x: "arange(3) + 1"}\nsteps:\n'
        "- {ranks: [0, 2], broadcast: {tensor: x, src: 0}}\n"
        "- {broadcast: {tensor: x, src: 1}}\n"
    )
    plan = torch_scenarios.plan(case_of(text, folder))
    assert not agrees(plan)
    found = take_together(plan, DEFAULT)
    assert not isinstance(found, CohortRun)
    with pytest.raises(HistoryMissingError):
        walk(plan, DEFAULT, found)


def test_the_engines_warn_of_the_same_steps(folder: Path) -> None:
    """The last rank to come is another one where two ranks come together."""
    text = (
        'world_size: 4\ntensors: {x: "arange(3)", y: "arange(3)", z: "arange(3)"}\nsteps:\n'
        "- {ranks: [1, 3], all_reduce: {tensor: x}}\n"
        "- {ranks: [2], all_reduce: {tensor: y}}\n"
        "- {ranks: [0], all_reduce: {tensor: z}}\n"
    )
    plan = torch_scenarios.plan(case_of(text, folder))
    assert not agrees(plan)
    said = [each.message for each in walk(plan, DEFAULT).warnings]
    assert [each.count("on rank 1") for each in said] == [1, 1]


@given(text=spmd_programs(wrong=False))
@BOUNDED
def test_the_engines_agree_on_programs_that_all_ranks_take_together(
    text: str, folder: Path
) -> None:
    try:
        plan = torch_scenarios.plan(case_of(text, folder))
        expected = walk(plan, DEFAULT)
    except ScenarioError:
        return  # a value that cannot be computed
    try:
        trace = run_together(plan, DEFAULT)
    except CohortError as beyond:
        assert expected.diagnoses or "undefined" in str(beyond), (text, str(beyond))  # noqa: PT017
        return
    assert departures(trace, expected) == [], text


@given(text=spmd_programs(wrong=True))
@BOUNDED
def test_the_engines_agree_on_broken_programs(text: str, folder: Path) -> None:
    try:
        plan = torch_scenarios.plan(case_of(text, folder))
    except ScenarioError:
        return  # a fault that the language itself refuses
    try:
        expected = walk(plan, DEFAULT)
    except ScenarioError:
        with pytest.raises(CohortError):
            run_together(plan, DEFAULT)
        return
    taken = agrees(plan)
    assert not (taken and expected.diagnoses), text


@pytest.mark.parametrize("wrong", [False, True])
def test_the_engines_agree_on_programs_whose_ranks_differ(wrong: bool, folder: Path) -> None:  # noqa: FBT001 -- a parameter
    @given(text=programs(wrong=wrong))
    @BOUNDED
    def compared(text: str) -> None:
        with contextlib.suppress(ScenarioError):  # a fault that the language itself refuses
            agrees(torch_scenarios.plan(case_of(text, folder)))

    compared()


RING = """\
parameters: {n: 24}
world_size: n
tensors: {x: "arange(n) + rank", y: [0]}
steps:
- for: {i: "range(n - 1)"}
  steps:
  - isend: {tensor: "x[(rank + i) % n : (rank + i) % n + 1]", dst: "(rank + 1) % n"}
    as: s
  - recv: {tensor: "x[(rank - i - 1) % n : (rank - i - 1) % n + 1]", src: "(rank - 1) % n"}
  - wait: s
  - compute: {y: "y + x[i]"}
"""


def test_values_that_were_not_kept_are_computed_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = torch_scenarios.plan(case_of(RING, folder))
    monkeypatch.setattr("torch_scenarios.reference.vector.engine.KEPT", 2_000)
    trace = run_together(plan, DEFAULT)
    assert departures(trace, walk(plan, DEFAULT)) == []


def test_an_event_can_be_taken_from_the_middle(folder: Path) -> None:
    plan = torch_scenarios.plan(case_of(RING, folder))
    events, expected = (
        trace.ranks[5].events for trace in (run_together(plan, DEFAULT), walk(plan, DEFAULT))
    )
    assert events[5].writes["x"].tolist() == expected[5].writes["x"].tolist()
    assert [event.label for event in events[2:9:3]] == [event.label for event in expected[2:9:3]]
    assert events[-1:][0].writes["y"].tolist() == expected[-1].writes["y"].tolist()


def test_the_last_event_is_made_without_those_before_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = run_together(torch_scenarios.plan(case_of(RING, folder)), DEFAULT)
    made = []
    make = ColumnEvents._event  # noqa: SLF001 -- what is counted

    def counted(events: ColumnEvents, batch: Batch, writes: Mapping[str, object]) -> Event:
        made.append(batch)
        return make(events, batch, writes)

    monkeypatch.setattr(ColumnEvents, "_event", counted)
    last = trace.ranks[3].events[-1:]
    assert (len(last), len(made)) == (1, 1)


def test_a_trace_travels_to_another_process(folder: Path) -> None:
    plan = torch_scenarios.plan(case_of(RING, folder))
    trace = run_together(plan, DEFAULT)
    assert departures(pickle.loads(pickle.dumps(trace)), trace) == []  # noqa: S301 -- ours


def test_too_many_steps_are_refused_at_once(folder: Path) -> None:
    plan = torch_scenarios.plan(case_of(RING, folder))
    with pytest.raises(ScenarioError, match="--limit steps=N"):
        run_together(plan, Limits(max_steps=1_000))


def test_too_much_memory_is_refused_before_it_is_taken(folder: Path) -> None:
    text = 'world_size: 16\ntensors: {x: "zeros(2000)"}\nsteps: [{barrier: {}}]\n'
    plan = torch_scenarios.plan(case_of(text, folder))
    with pytest.raises(ScenarioError, match="--limit bytes=N"):
        run_together(plan, Limits(max_bytes=100_000))


def test_large_tensors_are_left_to_the_other_engine(folder: Path) -> None:
    text = 'world_size: 16\ntensors: {x: "zeros(8000000)"}\nsteps: [{barrier: {}}]\n'
    with pytest.raises(CohortError, match="worth a column"):
        run_together(torch_scenarios.plan(case_of(text, folder)), DEFAULT)


def test_a_rank_goes_on_with_the_numbers_that_it_named_last(folder: Path) -> None:
    """A turn of a double buffer is left to the walk; the works before it are made anew for that."""
    text = (
        "world_size: 16\n"
        'tensors: {out: "full(2, rank)", into: "zeros(8)"}\n'
        "steps:\n"
        '- let: {last: "rank > 7"}\n'
        "- for: {turn: range(4)}\n"
        "  steps:\n"
        '  - let: {part: "2 * turn"}\n'
        '  - {ranks: "last and turn > 1", wait: "came[turn - 2]"}\n'
        '  - {ranks: "not last", isend: {tensor: out, dst: rank + 8}, as: "went[turn]"}\n'
        '  - {ranks: last, irecv: {tensor: "into[part:part + 2]", src: rank - 8},'
        ' as: "came[turn]"}\n'
        "- wait: [went, came]\n"
    )
    trace = walked_on(text, folder)
    assert (trace.outcome, trace.diagnoses) == ("completes", ())


def test_a_large_program_that_is_wrong_is_diagnosed(folder: Path) -> None:
    text = (
        "world_size: 32\ntensors: {x: [1]}\nsteps:\n"
        '- {send: {tensor: x, dst: "(rank + 1) % 32"}}\n'
        '- {recv: {tensor: x, src: "(rank - 1) % 32"}}\n'
    )
    trace = torch_scenarios.simulate(torch_scenarios.plan(case_of(text, folder)))
    assert trace.outcome == "deadlock"
    assert {each.name for each in trace.diagnoses} == {"circular_wait", "buffering_hazard"}


def test_a_large_ring_is_judged_with_what_is_expected_beside_steps(folder: Path) -> None:
    text = (CORPUS / "p2p" / "ring_all_reduce.yaml").read_text(encoding="utf-8")
    path = folder / "ring.yaml"
    path.write_text(text.replace("+ n * (n - 1) / 2)", "+ n * (n - 1) / 2 + (rank == 7))"))
    (scenario,) = torch_scenarios.load(path, sets={"n": "40"})
    verdict = torch_scenarios.judge(
        scenario, torch_scenarios.simulate(torch_scenarios.plan(scenario))
    )
    (finding,) = verdict.findings
    assert (finding.witness, finding.name, finding.ranks) == ("expectation", "sum", (7,))


def test_what_was_held_before_a_step_is_found(folder: Path) -> None:
    text = (
        'world_size: 20\ntensors: {x: "full(2, rank)"}\nsteps:\n'
        '- for: {i: "range(3)"}\n  steps: [{compute: {x: "x + 1"}}]\n'
        "- all_reduce: {tensor: x}\n"
        '  expect: {x: "sum([before(x, r) for r in range(20)])"}\n'
    )
    scenario = case_of(text, folder)
    verdict = torch_scenarios.judge(
        scenario, torch_scenarios.simulate(torch_scenarios.plan(scenario))
    )
    assert verdict.status == "PASSED"


PARTS = """\
world_size: 16
tensors: {{x: "arange(4) + rank", y: "zeros(4)"}}
steps:
- {{irecv: {{tensor: "{first}", src: "(rank - 1) % 16"}}, as: a}}
- {{{second}, as: b}}
- {{isend: {{tensor: "x[0:2]", dst: "(rank + 1) % 16"}}, as: c}}
- {{isend: {{tensor: "x[0:2]", dst: "(rank + 1) % 16", tag: 1}}, as: d}}
- {{wait: [a, b, c, d]}}
"""
RECEIVE = 'irecv: {{tensor: "{}", src: "(rank - 1) % 16", tag: 1}}'


@pytest.mark.parametrize(
    ("first", "second", "races"),
    [
        ("y[0:2]", "y[2:4]", False),
        ("y[0:2]", "y[1:3]", True),
        ("y[rank % 3 : rank % 3 + 2]", "x[2:4]", False),
        ("y[rank % 3 : rank % 3 + 2]", "y[2:4]", True),
        ("x[1:3]", "y[0:2]", True),
    ],
)
def test_parts_of_one_tensor_race_where_they_overlap(
    first: str,
    second: str,
    races: bool,  # noqa: FBT001 -- a parameter
    folder: Path,
) -> None:
    text = PARTS.format(first=first, second=RECEIVE.format(second))
    plan = torch_scenarios.plan(case_of(text, folder))
    assert bool(walk(plan, DEFAULT).diagnoses) == races
    assert agrees(plan) == (not races)


DIVERGING = """\
world_size: 16
groups: {{mesh: {{shape: [8, 2], dims: [half, pair]}}}}
tensors: {{x: "arange(4) + rank", y: "zeros(4)"}}
steps:
- {{isend: {{tensor: "x[0:2]", dst: "(rank + 1) % 16"}}, as: a}}
- {{recv: {{tensor: "{target}", src: "(rank - 1) % 16"}}}}
- {{wait: a}}
- {{compute: {{x: "{value}"}}}}
- {{ranks: "{ranks}", compute: {{y: "y + 1"}}}}
"""


@pytest.mark.parametrize(
    ("target", "value", "ranks"),
    [
        (
            "y[0:2] if rank % 2 == 0 else y[2:4]",
            "x + 1",
            "rank == 3 or rank in group_ranks(mesh.half)",
        ),
        ("y[2 * (rank % 2) :][0:2]", "x if rank < 3 and x[0] > 1 else -y", "5 < rank < 9"),
        (
            "reshape(y, [2, 2])[rank % 2, 0:2]",
            "stack([x[i] * rank for i in range(4)])",
            "mesh.half",
        ),
        (
            "y[1:3]",
            "x * sum(group_ranks(mesh.half)) + len(group_ranks(mesh.half))",
            "rank in range(3, 7)",
        ),
        ("y[0:2]", "x + 2**60 * rank", "not (rank % 3 and rank % 5)"),
    ],
)
def test_ranks_that_diverge_within_an_expression_are_taken_at_once(
    target: str, value: str, ranks: str, folder: Path
) -> None:
    text = DIVERGING.format(target=target, value=value, ranks=ranks)
    assert agrees(torch_scenarios.plan(case_of(text, folder)))


HANDLES = """\
world_size: 16
tensors: {x: "full(2, rank)", y: "zeros(2)", z: "zeros(2)"}
steps:
- {new_group: {name: low, group_ranks: "range(8)"}}
- {new_group: {name: odd, group_ranks: "range(1, 16, 2)", backend: gloo}}
- for: {i: "range(6)"}
  steps:
  - isend: {tensor: x, dst: "(rank + 1) % 16", tag: i}
    as: s[START]
  - recv: {tensor: y, src: "(rank - 1) % 16", tag: i}
  - all_reduce: {tensor: z, group: low, async_op: true}
    as: r
  - compute: {y: "y + rank if rank in group_ranks(odd) else y"}
  - wait: r
- {all_reduce: {tensor: z, group: odd}, ranks: odd}
WAIT
"""


@pytest.mark.parametrize("start", ["i", "(rank + i) % 6"])
@pytest.mark.parametrize(
    "wait",
    [
        "- {wait: s}",
        '- {wait: ["s[5]", "s[4]"]}\n- {wait: s}',
        "- for: {i: 'range(6)'}\n  steps: [{wait: 's[5 - i]'}]",
        "- for: {i: 'range(6)'}\n  steps: [{wait: 's[(i + rank) % 6]'}]",
    ],
)
def test_groups_that_are_created_and_indexed_handles_are_taken_at_once(
    start: str, wait: str, folder: Path
) -> None:
    text = HANDLES.replace("START", start).replace("WAIT", wait)
    assert agrees(torch_scenarios.plan(case_of(text, folder)))


STAGES = """\
world_size: 24
groups:
  mesh: {shape: [3, 4, 2], dims: [stage, data, tensor]}
tensors: {x: "full(2, rank)", y: "zeros(2)"}
steps:
- for: {t: "range(5)"}
  steps:
  - {all_reduce: {tensor: x, group: mesh.tensor}, ranks: "rank // 8 <= t < rank // 8 + 3"}
  - {isend: {tensor: x, dst: "(rank + 8) % 24", tag: t}, as: s}
  - {recv: {tensor: y, src: "(rank - 8) % 24", tag: t}}
  - {wait: s}
- {all_reduce: {tensor: y, group: mesh.data}}
"""


def test_groups_of_one_name_at_different_collectives_are_taken_at_once(folder: Path) -> None:
    assert agrees(torch_scenarios.plan(case_of(STAGES, folder)))


def test_a_step_that_stores_while_work_writes_another_part_is_walked(folder: Path) -> None:
    text = (
        'world_size: 16\ntensors: {x: "zeros(4)", y: "full(2, rank)"}\nsteps:\n'
        '- {irecv: {tensor: "x[0:2]", src: "(rank - 1) % 16"}, as: r}\n'
        '- {compute: {"x[2:4]": "y + 1"}}\n'
        '- {send: {tensor: y, dst: "(rank + 1) % 16"}}\n- {wait: r}\n'
    )
    assert not agrees(torch_scenarios.plan(case_of(text, folder)))


@pytest.mark.parametrize(
    "steps",
    [
        "- {all_reduce: {tensor: x, group: g}, ranks: '1 < rank < 6'}\n",
        "- {new_group: {name: h, group_ranks: [0, 3]}, ranks: 'rank < 9'}\n- barrier: {}\n",
        "- {new_group: {name: g, group_ranks: [0, 3]}}\n- {all_reduce: {tensor: x, group: g}}\n",
        "- {all_reduce: {tensor: x, async_op: true}, as: 's[rank % 3]'}\n- {wait: 's[1]'}\n",
        "- {isend: {tensor: x, dst: 5}, as: 's[rank % 2]', ranks: 4}\n- {wait: s, ranks: 4}\n",
        "- {recv: {tensor: x, src: 1, group: g}, ranks: 0}\n",
        "- {destroy_process_group: {group: g}}\n- {all_reduce: {tensor: x, group: g}}\n",
    ],
)
def test_what_begins_on_a_created_group_is_walked_from_there(steps: str, folder: Path) -> None:
    head = (
        'world_size: 16\ntensors: {x: "full(2, rank)"}\nsteps:\n'
        "- {new_group: {name: g, group_ranks: 'range(8)'}}\n- {all_reduce: {tensor: x, group: g}}\n"
    )
    trace = walked_on(head + steps, folder)
    assert len(trace.ranks[9].events) - len(trace.ranks[9].own) >= 1


WRONG_AT_THE_END = """\
world_size: 24
tensors: {x: "full(4, rank)", y: "zeros(4)"}
steps:
- for: {i: "range(20)"}
  steps:
  - isend: {tensor: x, dst: "(rank + 1) % 24"}
    as: s
  - recv: {tensor: y, src: "(rank - 1) % 24"}
  - wait: s
  - all_reduce: {tensor: x, op: max}
  - barrier: {}
    ranks: "i < 19 or rank != 5"
"""


def test_a_wrong_program_is_taken_together_until_nothing_moves(folder: Path) -> None:
    trace = walked_on(WRONG_AT_THE_END, folder)
    assert [each.name for each in trace.diagnoses] == ["missing_participant"]
    # what was taken together is in columns still: one event is made for who stands, none for others
    assert [len(rank.own) for rank in trace.ranks] == [0 if rank == 5 else 1 for rank in range(24)]


@pytest.mark.parametrize(
    "steps",
    [
        "- {ranks: 'rank', send: {tensor: x, dst: 0}}\n- {ranks: 0, recv: {tensor: y}}\n",
        "- {sleep: {duration: 1s}, ranks: 3}\n- barrier: {}\n- all_reduce: {tensor: x}\n",
        "- {fault: kill, ranks: 3}\n- all_reduce: {tensor: x}\n",
        "- {broadcast: {tensor: x, src: 0}, ranks: 'rank < 5'}\n- {compute: {y: 'x + 1'}}\n",
        "- {new_group: {name: g, ranks: 'range(8)', use_local_synchronization: true}}\n",
        "- {all_reduce: {tensor: x, async_op: true}, as: r}\n- {compute: {x: 'x + 1'}}\n",
        "- destroy_process_group: {}\n",
    ],
    ids=["anyone", "clock", "fault", "early leaver", "creation", "race", "no argument"],
)
def test_what_cohorts_cannot_do_is_walked_from_there(steps: str, folder: Path) -> None:
    head = (
        'world_size: 16\ntensors: {x: "full(2, rank)", y: [0, 0]}\nsteps:\n'
        "- all_reduce: {tensor: x}\n- {send: {tensor: x, dst: 1}, ranks: 0}\n"
        "- {recv: {tensor: x, src: 0}, ranks: 1}\n"
    )
    trace = walked_on(head + steps, folder)
    assert len(trace.ranks[9].events) - len(trace.ranks[9].own) >= 1


LISTS = (
    'world_size: 16\ntensors: {x: "full(2, rank)", l: "[zeros(2) for r in range(16)]", '
    "y: [0, 0]}\nsteps:\n"
)


@pytest.mark.parametrize(
    "steps",
    [
        (
            "- all_gather: {tensor_list: l, tensor: x}\n"
            "  expect: {l: '[full(2, r) for r in range(16)]'}"
        ),
        (
            "- all_gather: {tensor_list: l, tensor: x, async_op: true}\n  as: h\n- wait: h\n"
            "- compute: {y: 'l[3] + sum(l)'}"
        ),
        (
            "- all_gather: {tensor_list: l, tensor: x}\n- compute: {y: 'l[rank]'}\n"
            "- all_reduce: {tensor: 'l[5]'}\n- send: {tensor: 'l[1]', dst: 1}\n  ranks: 0\n"
            "- recv: {tensor: 'l[2]', src: 0}\n  ranks: 1\n  expect: {'l[2]': [1, 1]}"
        ),
        (
            "- compute: {l: '[x + r for r in range(16)]'}\n- compute: {'l[3][0:1]': 'x[0:1]'}\n"
            "- all_to_all: {output_tensor_list: l, input_tensor_list: l}"
        ),
        (
            "- compute: {m: '[x + r for r in range(16)]'}\n"
            "- all_to_all: {output_tensor_list: l, input_tensor_list: m}"
        ),
        (
            "- compute: {m: '[x + r for r in range(16)]'}\n"
            "- reduce_scatter: {output: y, input_list: m}\n- compute: {l: 'x'}\n"
        ),
    ],
    ids=["gathered", "waited for", "items", "stored into", "exchanged", "scattered"],
)
@pytest.mark.parametrize(
    "end", ["", "- barrier: {}\n  ranks: 'rank != 3'\n"], ids=["right", "wrong"]
)
def test_lists_of_tensors_are_taken_together(steps: str, end: str, folder: Path) -> None:
    plan = torch_scenarios.plan(case_of(f"{LISTS}{steps}\n{end}", folder))
    found = take_together(plan, DEFAULT)
    trace = found.trace if isinstance(found, CohortRun) else walk(plan, DEFAULT, found)
    assert departures(trace, walk(plan, DEFAULT)) == []
    if "output_tensor_list: l, input_tensor_list: l" not in steps:
        assert isinstance(found, CohortRun) == (not end)


def test_what_no_column_holds_waits_for_the_first_step_that_looks(folder: Path) -> None:
    text = (
        'world_size: 16\nobjects: {o: [1, {a: "rank"}]}\ntensors: {x: "full(2, rank)", '
        'r: "zeros(rank + 1)", l: "[zeros(i) for i in range(3)]"}\nsteps:\n'
        "- all_reduce: {tensor: x}\n- all_reduce: {tensor: x}\n"
    )
    plan = torch_scenarios.plan(case_of(text, folder))
    found = take_together(plan, DEFAULT)
    assert isinstance(found, CohortRun)
    assert departures(found.trace, walk(plan, DEFAULT)) == []
    trace = walked_on(f"{text}- compute: {{r: 'r + 1'}}\n", folder)
    assert all(len(rank.own) == 1 for rank in trace.ranks)


MODEL = """\
models:
  m: {layers: [{a: {Linear: {in_features: 2, out_features: 2}}}], loss: mse_loss, optimizer: SGD}
"""

#: what is walked: what a file has beside its steps, those after two steps, and from where
WALKED: dict[str, tuple[str, str, str]] = {
    "a call of a function on another rank": (
        "functions: {f: {returns: ones(1)}}",
        "- {rpc_sync: {to: 0, func: f}}",
        "the beginning",
    ),
    "a group that is refused": (
        "groups: {g: [0, 99]}",
        "- barrier: {}",
        "the beginning",
    ),
    "a loop over numbers that ranks name": (
        "",
        "- {let: {k: 'rank % 2'}}\n- for: {i: 'range(k)'}\n  steps: [{compute: {x: 'x + 1'}}]",
        "the beginning",
    ),
    "a loop that takes a value twice, in a wrong program": (
        "",
        "- for: {i: [1, 1]}\n  steps: [{compute: {x: 'x + i'}}]\n- {ranks: 0, barrier: {}}",
        "the beginning",
    ),
    "a message whose handle is lost, in a wrong program": (
        "",
        (
            "- for: {i: 'range(2)'}\n  steps:\n"
            "  - {ranks: 1, isend: {tensor: x, dst: 0}, as: h}\n"
            "  - {ranks: 0, recv: {tensor: x, src: 1}}\n"
            "- {ranks: 0, barrier: {}}"
        ),
        "the beginning",
    ),
    "a root that a rank disagrees on after another one has passed": (
        "",
        "- {ranks: [0, 2], broadcast: {tensor: x, src: 0}}\n- {broadcast: {tensor: x, src: 1}}",
        "the beginning",
    ),
    "a step of a model": (
        MODEL,
        "- {train: {model: m, input: x, target: x}}",
        "the first such step",
    ),
    "a list of tensors that a call makes": (
        "tensors: {x: 'full(2, rank)', l: '[zeros(2) for i in range(17)]'}",
        "- {all_gather: {tensor_list: 'l[:16]', tensor: x}}",
        "the first such step",
    ),
    "a list of tensors of several shapes": (
        "tensors: {x: 'full(2, rank)', l: '[zeros(i) for i in range(16)]'}",
        "- {compute: {x: 'x + l[2]'}}",
        "the first such step",
    ),
    "objects": (
        "objects: {o: [null]}",
        "- {broadcast_object_list: {object_list: o, src: 0}}",
        "the first such step",
    ),
    "a name with several shapes or dtypes": (
        "tensors: {x: 'full(2, rank)', y: 'zeros(rank + 1)'}",
        "- {compute: {y: 'y + 1'}}",
        "the first such step",
    ),
    "a receive from anyone": (
        "",
        "- {ranks: 1, send: {tensor: x, dst: 0}}\n- {ranks: 0, recv: {tensor: x}}",
        "the first such step",
    ),
    "time that passes": ("", "- sleep: 1s", "the first such step"),
    "a fault": ("", "- {ranks: 3, fault: kill}", "the first such step"),
    "a step that states what it raises": (
        "",
        "- {ranks: 3, broadcast: {tensor: x, src: 99}, expect: {raises: invalid_argument}}",
        "the first such step",
    ),
    "a call that torch refuses": ("", "- {broadcast: {tensor: x, src: 99}}", "the first such step"),
    "a group that only its members create": (
        "",
        "- {ranks: 0, new_group: {name: g, group_ranks: [0], use_local_synchronization: true}}",
        "the first such step",
    ),
    "a group that is destroyed": ("", "- destroy_process_group: {}", "the first such step"),
    "a tensor that two operations use at once": (
        "",
        "- {all_reduce: {tensor: x, async_op: true}, as: r}\n- {compute: {x: 'x + 1'}}\n- wait: r",
        "the first such step",
    ),
    "a result that is undefined": ("", "- {reduce: {tensor: x, dst: 0}}", "the first such step"),
    "members that disagree": ("", "- {broadcast: {tensor: x, src: rank}}", "the first such step"),
    "different collectives that meet": (
        "",
        "- {ranks: 'rank < 8', all_reduce: {tensor: x}}\n- {ranks: 'rank >= 8', barrier: {}}",
        "the first such step",
    ),
    "ranks that wait and are never released": (
        "",
        "- {ranks: 'rank != 3', barrier: {}}",
        "where nothing moves",
    ),
}


@pytest.mark.parametrize("name", WALKED)
def test_what_is_walked_is_walked_from_where_the_table_says(name: str, folder: Path) -> None:
    head, steps, where = WALKED[name]
    head = head if "tensors" in head else f'tensors: {{x: "full(2, rank)"}}\n{head}'
    begun = "- {compute: {x: 'x + 1'}}\n- {all_reduce: {tensor: x}}\n"
    plan = torch_scenarios.plan(
        case_of(f"world_size: 16\n{head}\nsteps:\n{begun}{steps}\n", folder)
    )
    try:
        found = take_together(plan, DEFAULT)
        assert not isinstance(found, CohortRun)
        ranks = walk(plan, DEFAULT, found).ranks
    except (CohortError, HistoryMissingError):
        assert where == "the beginning"
        return
    assert where != "the beginning"
    assert min(len(rank.events) - len(rank.own) for rank in ranks) >= 2


def test_the_page_lists_what_is_walked() -> None:
    page = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
    text = page.read_text(encoding="utf-8").split("## Two engines")[1].split("## Where")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")][1:]
    assert [(program.strip(), where.strip()) for program, where in rows] == [
        (name, where) for name, (_, _, where) in WALKED.items()
    ]
