"""From text to Scenario: every form of the language becomes the form that later stages read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from torch_scenarios.errors import ScenarioError
from torch_scenarios.expressions.values import (
    Constant,
    Expression,
    ListForm,
    Objects,
    PerRank,
    Record,
    TypedValue,
)
from torch_scenarios.language import load
from torch_scenarios.limits import Limits
from torch_scenarios.model.scenario import ElapsedBounds, RaiseSpec, Scenario, Step, Unchanged
from torch_scenarios.operations.base import PremulSum

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "world_size: 4\ntensors: {x: [1, 2], y: [3, 4]}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "it.yaml"


def one(file: Path, text: str) -> Scenario:
    file.write_text(text, encoding="utf-8")
    (scenario,) = load(file)
    return scenario


def steps(file: Path, text: str) -> tuple[Step, ...]:
    return one(file, f"{HEAD}steps:\n{text}").steps


def codes(file: Path, text: str) -> list[str]:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        load(file)
    return [problem.code for problem in caught.value.problems]


def text_of(form: object) -> str:
    assert isinstance(form, Expression)
    return form.text


def data(form: object) -> Any:
    assert isinstance(form, Constant)
    return form.value


# ---------------------------------------------------------------------- the top level


def test_what_is_left_out_has_its_default(file: Path) -> None:
    scenario = one(file, "world_size: 2\nsteps: [{barrier: }]\n")
    assert scenario.name == scenario.case == "it"
    assert scenario.timeout_s == 10.0
    assert scenario.debug == "off"
    assert scenario.backends is None
    assert scenario.expect.ends == ("completes",)
    assert scenario.expect.backends == ()


def test_the_top_level_is_taken_over(file: Path) -> None:
    scenario = one(
        file,
        "version: 1\nname: mine\ndescription: what\ntags: [a, 1]\nworld_size: 3\n"
        "backends: [gloo]\ntimeout: 200ms\ndebug: detail\nsteps: [{barrier: {}}]\n",
    )
    assert (scenario.name, scenario.description, scenario.tags) == ("mine", "what", ("a", "1"))
    assert (scenario.world_size, scenario.backends) == (3, ("gloo",))
    assert (scenario.timeout_s, scenario.debug) == (0.2, "detail")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("0.5s", 0.5), ("200ms", 0.2), ("2min", 120), ("3", 3), ("1h", 3600),
     ("2 * n", 8), ("50us", 5e-5)],
)  # fmt: skip
def test_durations_have_units(text: str, seconds: float, file: Path) -> None:
    scenario = one(
        file, f"world_size: 2\nparameters: {{n: 4}}\ntimeout: {text}\nsteps: [{{barrier: }}]\n"
    )
    assert scenario.timeout_s == pytest.approx(seconds)


def test_more_ranks_than_allowed_need_a_higher_limit(file: Path) -> None:
    text = "world_size: 65\nsteps: [{barrier: }]\n"
    assert codes(file, text) == ["too_many_ranks"]
    (scenario,) = load(file, limits=Limits(max_ranks=65))
    assert scenario.world_size == 65


# ---------------------------------------------------------------------- values


def test_a_number_or_a_list_is_data_and_text_is_an_expression(file: Path) -> None:
    tensors = one(
        file,
        "world_size: 2\ntensors:\n  a: [[1, 2], [3, 4]]\n  b: 'full(2, rank)'\n  c: 5\n"
        "  d: [1, rank, 3]\n  e: [[1, rank], [2, 3]]\n  f: []\n  g: [.inf, true]\n"
        "steps: [{barrier: }]\n",
    ).tensors
    assert data(tensors["a"]) == [[1, 2], [3, 4]]
    assert text_of(tensors["b"]) == "full(2, rank)"
    assert data(tensors["c"]) == 5
    mixed = tensors["d"]
    assert isinstance(mixed, ListForm)
    assert [type(item) for item in mixed.items] == [Constant, Expression, Constant]
    rows = tensors["e"]
    assert isinstance(rows, ListForm)
    assert data(rows.items[1]) == [2, 3]
    assert data(tensors["f"]) == []
    assert data(tensors["g"]) == [float("inf"), True]


def test_a_mapping_is_per_rank_unless_its_keys_are_those_of_the_long_form(file: Path) -> None:
    tensors = one(
        file,
        "world_size: 4\ngroups: {even: [0, 2]}\ntensors:\n"
        "  a: {0: [1], [1, 2]: [2], even: [3], 'rank > 2': [4], else: [5]}\n"
        "  b: {value: [1], dtype: int64, shape: [1, 1]}\n"
        "  c: {0: {dtype: int8, value: 'rank'}}\n"
        "  d: {dtype: {0: int8, else: int16}, value: [1]}\n"
        "steps: [{barrier: }]\n",
    ).tensors
    chosen = tensors["a"]
    assert isinstance(chosen, PerRank)
    assert [selector.text for selector, _ in chosen.branches] == ["0", "[1, 2]", "even", "rank > 2"]
    assert data(chosen.branches[1][0].form) == [1, 2]
    assert data(chosen.otherwise) == [5]
    assert isinstance(tensors["b"], TypedValue)
    assert data(tensors["b"].dtype) == "int64"
    inner = tensors["c"]
    assert isinstance(inner, PerRank)
    assert inner.otherwise is None
    assert isinstance(inner.branches[0][1], TypedValue)
    assert isinstance(tensors["d"], TypedValue)
    assert isinstance(tensors["d"].dtype, PerRank)


def test_inside_objects_text_is_text(file: Path) -> None:
    objects = one(
        file,
        "world_size: 2\nobjects:\n  a: [hello, {expr: rank}, {b: [1, no]}]\n  b: {x: 1}\n"
        "  c: {0: left, else: right}\n  d: rank\n  e: {expr: rank + 1}\nsteps: [{barrier: }]\n",
    ).objects
    listed = objects["a"]
    assert isinstance(listed, Objects)
    assert listed.tree[0] == "hello"
    assert text_of(listed.tree[1]) == "rank"
    assert listed.tree[2] == {"b": [1, "no"]}
    assert isinstance(objects["b"], Objects)
    assert objects["b"].tree == {"x": 1}
    assert isinstance(objects["c"], PerRank)
    assert isinstance(objects["d"], Objects)
    assert objects["d"].tree == "rank"
    assert isinstance(objects["e"], Objects)
    assert text_of(objects["e"].tree) == "rank + 1"


def test_tensors_may_have_the_name_of_a_function_but_parameters_may_not(file: Path) -> None:
    scenario = one(
        file, "world_size: 2\ntensors: {sum: [1], mean: 'sum(sum)'}\nsteps: [{barrier: }]\n"
    )
    assert set(scenario.tensors) == {"sum", "mean"}
    assert codes(file, "world_size: 2\nparameters: {sum: 1, mean: 2}\nsteps: [{barrier: }]\n") == [
        "reserved_name",
        "reserved_name",
    ]


# ---------------------------------------------------------------------- groups


def test_groups_have_five_forms(file: Path) -> None:
    groups = one(
        file,
        "world_size: 8\nparameters: {b: gloo}\ngroups:\n  a: [0, 2]\n  b2: 'range(4)'\n"
        "  c: {ranks: [3, 1], sort_ranks: false, timeout: 1s, backend: b}\n"
        "  d: {partition: [[0, 1], 'range(2, 4)']}\n  e: {size: 2}\n"
        "  mesh: {shape: [2, 4], dims: [dp, tp]}\n"
        "steps:\n  - barrier: {group: mesh.dp}\n"
        "    expect: {'group_rank(mesh.tp)': 0, x_: 1}\n".replace(", x_: 1", ""),
    ).groups
    a, b, c, d, e, mesh = groups
    assert data(a.ranks) == [0, 2]
    assert text_of(b.ranks) == "range(4)"
    assert (data(c.ranks), c.sort_ranks, c.timeout_s, c.backend) == ([3, 1], False, 1.0, "gloo")
    assert isinstance(d.partition, ListForm)
    assert data(e.size) == 2
    assert (data(mesh.shape), mesh.dims) == ([2, 4], ("dp", "tp"))


# ---------------------------------------------------------------------- steps


def test_steps_are_numbered_depth_first_in_the_order_of_the_file(file: Path) -> None:
    first, loop, last = steps(
        file,
        "  - barrier: {}\n  - for: {i: 'range(2)'}\n    steps:\n      - barrier: {}\n"
        "      - barrier: {}\n  - barrier: {}\n",
    )
    assert (first.index, loop.index, last.index) == (0, 1, 4)
    assert [step.index for step in loop.body] == [2, 3]
    assert loop.variable == "i"
    assert text_of(loop.over) == "range(2)"


def test_arguments_have_the_name_that_the_operation_declares(file: Path) -> None:
    (step,) = steps(file, "  - all_gather_into_tensor: {output_tensor: y, input_tensor: x}\n")
    assert step.operation is not None
    assert step.operation.name == "all_gather_single"
    names = {param.name for param in step.operation.params}
    assert set(step.arguments) <= names
    assert len(step.arguments) == 2


def test_fixed_names_are_names_and_parameters_stand_for_theirs(file: Path) -> None:
    scenario = one(
        file,
        "world_size: 4\nparameters: {how: max, place: even, kind: int64}\n"
        "groups: {even: [0, 2]}\ntensors: {x: {dtype: kind, value: [1]}}\n"
        "steps:\n  - all_reduce: {tensor: x, op: how, group: place}\n"
        "  - all_reduce: {tensor: x, op: {even: sum, else: how}, group: even}\n"
        "  - all_reduce: {tensor: x, op: {premul_sum: 0.5}}\n",
    )
    first, second, third = scenario.steps
    assert data(first.arguments["op"]) == "max"
    assert data(first.arguments["group"]) == "even"
    assert isinstance(scenario.tensors["x"], TypedValue)
    assert data(scenario.tensors["x"].dtype) == "int64"
    differing = second.arguments["op"]
    assert isinstance(differing, PerRank)
    assert data(differing.otherwise) == "max"
    assert data(third.arguments["op"]) == PremulSum(factor=0.5)


def test_a_parameter_that_holds_a_groups_name_stands_for_the_group(file: Path) -> None:
    scenario = one(
        file,
        "world_size: 4\nparameters: {place: even}\ngroups: {even: [0, 2]}\n"
        "tensors: {x: {place: [1], else: [2]}}\n"
        "steps:\n  - expect: {'group_rank(place) + 1': 1}\n",
    )
    assert scenario.steps[0].expect is not None
    assert scenario.steps[0].expect.values[0].key.text == "group_rank(even) + 1"
    x = scenario.tensors["x"]
    assert isinstance(x, PerRank)
    assert text_of(x.branches[0][0].form) == "even"


def test_operations_with_one_value_take_it_bare_or_named(file: Path) -> None:
    found = steps(
        file,
        "  - all_reduce: {tensor: x, async_op: true}\n    as: h\n"
        "  - wait: h\n  - wait: [h]\n  - wait: {handles: h}\n"
        "  - compute: {z: x + 1, w: z}\n  - compute: {assignments: {v: 1}}\n"
        "  - sleep: 200ms\n  - fault: kill\n  - fault: {raise: out of luck}\n",
    )
    _, single, listed, named, compute, wrapped, sleep, kill, raised = found
    assert data(single.arguments["handles"]) == data(named.arguments["handles"]) == "h"
    assert data(listed.arguments["handles"]) == ["h"]
    for step, names in ((compute, ["z", "w"]), (wrapped, ["v"])):
        record = step.arguments["assignments"]
        assert isinstance(record, Record)
        assert list(record.fields) == names
    assert data(next(iter(sleep.arguments.values()))) == 0.2
    assert data(next(iter(kill.arguments.values()))) == "kill"
    message = next(iter(raised.arguments.values()))
    assert isinstance(message, Record)
    assert data(message.fields["raise"]) == "out of luck"


def test_messages_of_a_batch_have_one_form(file: Path) -> None:
    short, long = steps(
        file,
        "  - batch_isend_irecv:\n      - {isend: {tensor: x, dst: 1, tag: 3}}\n"
        "      - {irecv: {tensor: y, group_src: 0, group: world}}\n    as: h\n"
        "  - batch_isend_irecv: {p2p_op_list: [{op: isend, tensor: x, peer: rank + 1}]}\n"
        "    as: h\n",
    )
    listed = short.arguments["p2p_op_list"]
    assert isinstance(listed, ListForm)
    send, receive = listed.items
    assert isinstance(send, Record)
    assert {name: form for name, form in send.fields.items() if name != "tensor"} == {
        "op": Constant(value="isend"), "peer": Constant(value=1), "tag": Constant(value=3)
    }  # fmt: skip
    assert isinstance(receive, Record)
    assert data(receive.fields["group_peer"]) == 0
    again = long.arguments["p2p_op_list"]
    assert isinstance(again, ListForm)
    assert isinstance(again.items[0], Record)
    assert text_of(again.items[0].fields["peer"]) == "rank + 1"


def test_an_expect_beside_a_loop_holds_after_its_last_round(file: Path) -> None:
    loop, after = steps(
        file,
        "  - for: {i: [0, 1]}\n    ranks: [0]\n    steps: [{compute: {z: i}}]\n"
        "    expect: {z: 1}\n",
    )
    assert loop.expect is None
    assert after.operation is None
    assert after.expect is not None
    assert after.ranks is not None
    assert after.ranks.text == "[0]"


def test_a_loop_may_have_as_many_turns_as_the_place_in_a_group_says(file: Path) -> None:
    (loop,) = steps(
        file,
        "  - for: {i: range(group_rank(world) + 1)}\n    steps: [{barrier: {}}]\n",
    )
    assert isinstance(loop.over, Expression)


def test_what_torch_refuses_when_called_loads(file: Path) -> None:
    assert len(
        steps(
            file,
            "  - send: {tensor: x, dst: 99}\n  - send: {tensor: x, dst: rank}\n"
            "  - broadcast: {tensor: x, src: 0, group_src: 0}\n  - broadcast: {tensor: x}\n"
            "  - send: {tensor: x, dst: 1, tag: -1}\n",
        )
    ) == 5  # fmt: skip


def test_an_output_may_be_a_view_a_list_of_views_or_nothing(file: Path) -> None:
    found = steps(
        file,
        "  - all_reduce: {tensor: 'x[0:1]'}\n"
        "  - all_gather: {tensor_list: ['x', 'y[0:2]', x, x], tensor: x}\n"
        "  - gather: {tensor: x, gather_list: {0: '[x[i] for i in range(2)]', else: null}}\n"
        "  - broadcast: {tensor: {0: x + 1, else: x}, src: 0}\n",
    )
    assert len(found) == 4
    text = f"{HEAD}steps:\n  - all_gather: {{tensor_list: [x, 'x + 1'], tensor: x}}\n"
    assert codes(file, text) == ["output_not_a_name"]


# ---------------------------------------------------------------------- expectations


def test_an_expectation_has_values_time_and_errors(file: Path) -> None:
    (step,) = steps(
        file,
        "  - all_reduce: {tensor: x}\n    expect:\n      x: {0: [1, 2], else: unchanged}\n"
        "      y: {value: 'exp(x)', rtol: 1e-3}\n      'x[0]': 4\n"
        "      'x * 2': {dtype: float32, shape: [2]}\n"
        "      elapsed: {min: 0.3s, max: 2s}\n      raises: {0: timeout, else: none}\n",
    )
    assert step.expect is not None
    x, y, first, double = step.expect.values
    assert isinstance(x.wanted, PerRank)
    assert isinstance(x.wanted.otherwise, Unchanged)
    assert isinstance(y.wanted, TypedValue)
    assert y.wanted.rtol == 1e-3
    assert first.key.text == "x[0]"
    assert isinstance(double.wanted, TypedValue)
    assert double.wanted.value is None
    assert isinstance(step.expect.elapsed, ElapsedBounds)
    assert data(step.expect.elapsed.min_s) == 0.3
    assert isinstance(step.expect.raises, PerRank)
    assert step.expect.raises.otherwise == RaiseSpec(kinds=())


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("timeout", RaiseSpec(kinds=("timeout",))),
        ("[timeout, peer_lost]", RaiseSpec(kinds=("timeout", "peer_lost"))),
        ("none", RaiseSpec(kinds=())),
        ("{timeout: after 5 s}", RaiseSpec(kinds=("timeout",), contains="after 5 s")),
    ],
)
def test_raises_takes_kinds_and_a_part_of_the_message(
    text: str, spec: RaiseSpec, file: Path
) -> None:
    (step,) = steps(file, f"  - all_reduce: {{tensor: x}}\n    expect: {{raises: {text}}}\n")
    assert step.expect is not None
    assert step.expect.raises == spec


def test_what_an_object_must_be_is_plain_too(file: Path) -> None:
    scenario = one(
        file,
        "world_size: 2\nobjects: {names: [ada, null]}\nsteps:\n"
        "  - broadcast_object_list: {object_list: names, src: 0}\n"
        "    expect:\n      names: [ada, grace]\n"
        "expect: {names: {0: [ada], else: '[names[0]]'}}\n",
    )
    expected = scenario.steps[0].expect
    assert expected is not None
    wanted = expected.values[0].wanted
    assert isinstance(wanted, Objects)
    assert wanted.tree == ["ada", "grace"]
    final = scenario.expect.at_end.values[0].wanted
    assert isinstance(final, PerRank)
    assert isinstance(final.otherwise, Expression)


def test_the_end_states_outcome_blocked_ranks_diagnoses_and_deaths(file: Path) -> None:
    expect = one(
        file,
        f"{HEAD}steps: [{{barrier: }}]\nexpect:\n  outcome: deadlock\n"
        "  blocked: {0: send to 1, else: my step}\n  diagnosis: [circular_wait]\n"
        "  dies: {1: SIGABRT, 2: exit 1}\n  within: 5s\n  x: unchanged\n",
    ).expect
    assert expect.outcomes == ("deadlock",)
    assert expect.blocked is not None
    assert expect.blocked.branches[0][1] == "send to 1"
    assert expect.blocked.otherwise == "my step"
    assert expect.diagnoses == ("circular_wait",)
    assert expect.dies is not None
    assert [text for _, text in expect.dies.branches] == ["SIGABRT", "exit 1"]
    assert expect.within_s == 5.0
    assert [value.key.text for value in expect.at_end.values] == ["x"]


def test_a_backends_section_is_merged_over_the_general_expectation(file: Path) -> None:
    expect = one(
        file,
        f"{HEAD}steps: [{{barrier: }}]\nbackends: [gloo, mine]\nexpect:\n  outcome: deadlock\n"
        "  diagnosis: op_mismatch\n  blocked: {0: barrier}\n  x: [1, 2]\n  y: [3, 4]\n"
        "  nccl: {outcome: completes, x: [0, 0]}\n  mine: {within: 2s}\n",
    ).expect
    nccl, mine = expect.on("nccl"), expect.on("mine")
    assert expect.on("gloo") == expect
    assert (nccl.ends, nccl.blocked, nccl.diagnoses) == (("completes",), None, ("op_mismatch",))
    assert {value.key.text: data(value.wanted) for value in nccl.at_end.values} == {
        "x": [0, 0], "y": [3, 4]
    }  # fmt: skip
    assert (mine.ends, mine.within_s) == (("deadlock",), 2.0)
    assert mine.blocked == expect.blocked


def test_before_belongs_to_expectations(file: Path) -> None:
    (step,) = steps(
        file,
        "  - all_reduce: {tensor: x}\n"
        "    expect: {x: 'sum([before(x, r) for r in group_ranks(world)])'}\n",
    )
    assert step.expect is not None
    wanted = step.expect.values[0].wanted
    assert isinstance(wanted, Expression)
    assert wanted.before == {"x"}
    text = f"{HEAD}steps:\n  - ranks: 'before(x, 0)[0] > 1'\n    barrier: {{}}\n"
    assert codes(file, text) == ["before_outside_expect"]


def test_lists_of_tensors_of_different_length_may_be_expected_as_data(file: Path) -> None:
    scenario = one(
        file,
        "world_size: 2\ntensors: {x: '[zeros(1), zeros(2)]'}\n"
        "steps:\n  - expect: {x: [[0], [0, 0]]}\n",
    )
    assert scenario.steps[0].expect is not None
    wanted = scenario.steps[0].expect.values[0].wanted
    assert isinstance(wanted, ListForm)
    assert [data(row) for row in wanted.items] == [[0], [0, 0]]


def test_a_parameter_may_hold_a_duration(file: Path) -> None:
    scenario = one(
        file,
        "world_size: 2\nparameters: {pause: 200ms}\ntimeout: pause\nsteps: [{sleep: pause}]\n",
    )
    assert scenario.timeout_s == 0.2
    assert [data(form) for form in scenario.steps[0].arguments.values()] == [0.2]


def test_a_batch_may_differ_between_ranks(file: Path) -> None:
    (step,) = steps(
        file,
        "  - batch_isend_irecv: {0: [{isend: {tensor: x, dst: 1}}], else: []}\n    as: h\n",
    )
    assert isinstance(step.arguments["p2p_op_list"], PerRank)
