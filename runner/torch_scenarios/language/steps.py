"""The list of steps: one action each, and the keys beside it.

Each step gets a number, in the order of the text with `use` inlined. Traces, diagnoses and reports
refer to steps by it, so that a `for` has one number, and each step of its body has one, however
often it turns.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from torch_scenarios.expressions.compile import GROUP_CALLS
from torch_scenarios.expressions.values import Constant, Expression, Form, PerRank
from torch_scenarios.language import values
from torch_scenarios.language.arguments import arguments_of, output_of_wait, read_parts
from torch_scenarios.language.context import Context
from torch_scenarios.language.expectations import expectation
from torch_scenarios.language.keys import ACTIONS, BESIDE, BODY
from torch_scenarios.language.names import INDEXED, is_text, police_length
from torch_scenarios.language.use import inline, police_number
from torch_scenarios.language.values import constant_value, expression
from torch_scenarios.limits import explain_bound
from torch_scenarios.model.scenario import Step
from torch_scenarios.operations import BY_NAME
from torch_scenarios.operations.base import Operation
from torch_scenarios.operations.compute import PARTS
from torch_scenarios.operations.wait import OUTPUT
from torch_scenarios.source.repairs import add_argument
from torch_scenarios.source.tree import Mapping, Node, Scalar, Sequence, key_text


def step_list(node: Node | None, context: Context) -> tuple[Step, ...]:
    """Return the steps of a list, `use` inlined.

    What `ranks` says stays with the step, unevaluated: who takes it may depend on what a rank holds
    when it comes there. One list is projected onto the ranks in the simulation, and in each worker.
    """
    if not isinstance(node, Sequence):
        return ()
    return tuple(step for item in node.items for step in _steps(item, context))


def _steps(node: Node, context: Context) -> list[Step]:
    """Return what one item of the list becomes: a step; for `use` and `for` it may be several."""
    assert isinstance(node, Mapping)
    action = next((entry for entry in node.entries if key_text(entry[0]) in _ACTIONS), None)
    beside = {word: value for word in BESIDE if (value := node.get(word)) is not None}
    if action is None:
        return _bare_expectation(node, beside, context)
    key, value = action
    _police_handle(key, value, beside, context)
    match key_text(key):
        case "for":
            return _loop(node, value, beside, context)
        case "use":
            return _insert(node, key, value, beside, context)
        case name:
            return [_operation(node, BY_NAME[name], key, value, beside, context)]


_ACTIONS = BY_NAME.keys() | ACTIONS.keys()


def _name(beside: dict[str, Node], context: Context) -> str | None:
    """Return the name of a step, by which reports and `blocked:` refer to it; or None.

    In a used part it begins with the part's name, `ring: send to the right`, and is numbered where
    the part is used again: `ring (2): send to the right`.
    """
    node = beside.get("name")
    if node is None:
        return None
    assert isinstance(node, Scalar)
    name = node.text.strip()
    police_length(name, node.mark, context.problems, what="the name of a step")
    if context.inlined is not None:
        name = f"{context.inlined.stem}: {name}"
        count = 2
        while name in context.step_names:
            name = f"{context.inlined.stem} ({count}): {node.text.strip()}"
            count += 1
    elif name in context.step_names:
        context.problems.add(
            "duplicate_step_name",
            f"another step is called `{name}`",
            node.mark,
            "reports and `blocked:` refer to a step by its name",
        )
    context.step_names.add(name)
    return name


def _fields(node: Mapping, beside: dict[str, Node], context: Context) -> dict[str, Any]:
    """Return the keys beside an action, as fields of its step, which gets its number here."""
    index = next(context.index)
    police_number(index, node, context)
    at = read_place(beside["at"], context) if "at" in beside else context.at
    mark = _call_of(node).mark
    fields: dict[str, Any] = {
        "index": index,
        "name": _name(beside, context),
        "at": at,
        "mark": mark if at is None else replace(mark, at=_join_places(at)),
        "whole": node.mark,
    }
    if "ranks" in beside:
        fields["ranks"] = values.selector(beside["ranks"], context)
    if "as" in beside:
        fields["handle"], fields["handle_index"] = _handle(beside["as"], context)
    if "expect" in beside:
        fields["expect"] = expectation(beside["expect"], context)
    return fields


def _call_of(node: Mapping) -> Node:
    """Return the key that says what a step does; of one without an action, its `expect`."""
    keys = {key_text(key): key for key, _ in node.entries}
    action = next((key for word, key in keys.items() if word in _ACTIONS), None)
    return action or keys.get("expect", node)


def read_place(node: Node, context: Context) -> str | PerRank[str] | None:
    """Return where a step stands in the program that it was recorded from: words, by rank.

    It is never opened as a path. A record of two ranks in different branches has `{0: train.py:19,
    else: train.py:22}`.
    """
    if isinstance(node, Mapping):
        return values.read_per_rank(node, context, _read_place)
    return _read_place(node, context) or None


def _read_place(node: Node, context: Context) -> str:
    police_length(key_text(node), node.mark, context.problems, what="the place of `at`")
    return key_text(node).strip()


def _join_places(at: str | PerRank[str]) -> str | None:
    """Return the places of all ranks, each once."""
    if isinstance(at, str):
        return at
    places = [place for _, place in at.branches] + ([at.otherwise] if at.otherwise else [])
    return " or ".join(dict.fromkeys(filter(None, places))) or None


def _handle(node: Node, context: Context) -> tuple[str | None, Form | None]:
    """Return the name of a handle, and what it is indexed by: `up[t]` is one for each `t`."""
    node, context = values.resolve_given(node, context, "handle")
    if not isinstance(node, Scalar) or node.value is None:
        return None, None
    indexed = INDEXED.fullmatch(node.value)
    if indexed is None:
        return context.final(node.value), None
    index = Scalar(mark=node.mark, value=indexed["index"], text=indexed["index"])
    return context.final(indexed["name"]), expression(index, context)


def _police_handle(key: Node, value: Node, beside: dict[str, Node], context: Context) -> None:
    """Note `as` beside an action that starts no asynchronous work.

    `async_op: "rank > 0"` starts some on some ranks, so that only what is surely false is noted.
    """
    name = beside.get("as")
    if name is None:
        return
    operation = BY_NAME.get(key_text(key))
    if operation is not None and operation.asynchronous:
        return
    can = operation is not None and any(each.name == "async_op" for each in operation.params)
    given = value.get("async_op") if isinstance(value, Mapping) else None
    if can and given is not None and not (isinstance(given, Scalar) and given.value is False):
        return
    context.problems.add(
        "handle_without_work",
        f"`as` names work that goes on, but `{key_text(key)}` is complete when it returns",
        name.mark,
        "add `async_op: true` to its arguments" if can else "leave `as` out",
        add_argument(value, "async_op: true") if can and given is None else None,
    )


def _bare_expectation(node: Mapping, beside: dict[str, Node], context: Context) -> list[Step]:
    if "as" in beside:
        context.problems.add(
            "handle_without_work",
            "`as` names work that goes on, but this step starts none",
            beside["as"].mark,
        )
    return [Step(**_fields(node, beside, context))]


def _operation(
    node: Mapping,
    operation: Operation,
    key: Node,
    value: Node,
    beside: dict[str, Node],
    context: Context,
) -> Step:
    fields = _fields(node, beside, context)
    arguments = arguments_of(operation, key, value, context)
    parts = read_parts(operation, value, context)
    if parts is not None:
        arguments[PARTS] = parts
    output = output_of_wait(operation, value, context)
    if output is not None:
        arguments[OUTPUT] = output
    return Step(operation=operation, arguments=arguments, **fields)


def _loop(node: Mapping, value: Node, beside: dict[str, Node], context: Context) -> list[Step]:
    """Return a `for`; an `expect` beside it becomes another step, after the last round.

    A loop stays one step with a body, and is not unrolled here: over how many values it runs may be
    another on each rank, `{i: "range(rank)"}`.
    """
    after = beside.pop("expect", None)
    fields = _fields(node, beside, context)
    body = node.get(BODY)
    if not isinstance(value, Mapping) or not value.entries:
        step_list(body, context)
        return []
    found = _nest(value.entries, body, fields, context)
    if after is None:
        return [found]
    expected = {"expect": after, **({"ranks": beside["ranks"]} if "ranks" in beside else {})}
    return [found, Step(**_fields(node, expected, context))]


def _nest(
    variables: list[tuple[Node, Node]], body: Node | None, fields: dict[str, Any], context: Context
) -> Step:
    """Return the loop over the first variable; the others nest inside of it, in their order.

    `turns` are the names that `let` gives in the body: they end with each turn, and the executors
    forget them then.
    """
    (key, over), *others = variables
    written = key_text(key)
    is_text(key, context.problems, of="a variable")
    if written in context.loops:
        context.problems.add("duplicate_name", f"an outer `for` already uses `{written}`", key.mark)
    final = context.variable(written)
    turns: set[str] = set()
    values = _values(over, context)
    inner = context.within(written, final, turns)
    if others:
        index = next(context.index)
        police_number(index, key, context)
        inside: tuple[Step, ...] = (
            _nest(others, body, {"index": index, "mark": others[0][0].mark}, inner),
        )
    else:
        inside = step_list(body, inner)
    return Step(variable=final, over=values, body=inside, numbers=tuple(sorted(turns)), **fields)


def _values(node: Node, context: Context) -> Form:
    """Return what a loop runs over: a list of integers, or an expression; bounded if constant.

    A loop whose length depends on the rank is counted while it runs.
    """
    form = values.integers(node, context)
    known = context.names.constants.keys() | context.world.keys()
    count = 0
    if isinstance(form, Constant) and isinstance(form.value, list):
        count = len(form.value)
    elif (
        isinstance(form, Expression)
        and form.names <= known
        and not form.calls & GROUP_CALLS  # another on each rank
        and isinstance(node, Scalar)
    ):
        count = _count(node, context)
    if count > context.limits.max_loop:
        context.problems.add(
            "loop_too_long",
            f"this `for` runs {count} times; {explain_bound('max_loop', context.limits)}",
            node.mark,
        )
    return form


def _count(node: Scalar, context: Context) -> int:
    values = constant_value(node, context, what="what `for` runs over", extra=context.world)
    if values is None:
        return 0
    if isinstance(values, list | tuple | range):
        return len(values)
    context.problems.add(
        "bad_loop",
        f"`{node.text}` is {values!r}, nothing to run over",
        node.mark,
        f"did you mean `range({node.text})`?",
    )
    return 0


def _insert(
    node: Mapping, key: Node, value: Node, beside: dict[str, Node], context: Context
) -> list[Step]:
    """Return the steps of a used file; `ranks` and `expect` beside `use` hold for all of it.

    `ranks` beside `use` is a loop of one turn around its steps: each rank decides once whether it
    takes the part, and not again at each step of it, when its tensors may have changed.
    """
    name = beside.pop("name", None)
    if "at" in beside:
        context = context.change(at=read_place(beside.pop("at"), context))
    inner = inline(key, value, context, name.text if isinstance(name, Scalar) else None)
    if inner is None:
        return []
    steps, there = inner
    selected = {"ranks": beside["ranks"]} if "ranks" in beside else {}
    found: tuple[Step, ...]
    if selected:
        fields = _fields(node, selected, context)
        once = Constant(value=[0], mark=node.mark)
        found = (
            Step(variable=there.fresh("once"), over=once, body=step_list(steps, there), **fields),
        )
    else:
        found = step_list(steps, there)
    if "expect" not in beside:
        return list(found)
    return [*found, Step(**_fields(node, {**selected, "expect": beside["expect"]}, context))]
