"""`functions:`: what one rank may ask of another, and whether the calls fit."""

from __future__ import annotations

from collections.abc import Mapping as Mapping_

from msgspec.structs import replace

from torch_scenarios.errors import Mark
from torch_scenarios.expressions.values import Constant, Expression, Form, ListForm
from torch_scenarios.language import values
from torch_scenarios.language.arguments import parts_in
from torch_scenarios.language.context import Context
from torch_scenarios.language.names import police_name
from torch_scenarios.model.scenario import Function, Step, steps_of
from torch_scenarios.operations import IMPLIED
from torch_scenarios.operations.base import RemoteCall, Waiting
from torch_scenarios.operations.wait import output_of
from torch_scenarios.source.tree import Mapping, Node, Sequence, key_text


def functions_of(node: Node | None, context: Context) -> dict[str, Function]:
    """Return what one rank may ask of another, by name; every problem is noted.

    A function sees the tensors of the rank that is called, and its arguments; it calls no other.

        functions: {push: {arguments: [g], sets: {w: "w - 0.1 * g"}, returns: w}}

    is, on the rank that is called, `def push(g): w.copy_(w - 0.1 * g); return w.clone()`, run by
    torch's `rpc_sync` and `rpc_async` (https://docs.pytorch.org/docs/stable/rpc.html).
    """
    found: dict[str, Function] = {}
    for key, entry in node.entries if isinstance(node, Mapping) else ():
        assert isinstance(entry, Mapping)
        name = key_text(key)
        police_name(context.problems, name, key.mark, what="this function")
        given = _arguments(entry.get("arguments"), context)
        names = replace(context.names, computed=context.names.computed | {*given})
        there = context.change(names=names)
        sets, parts = _sets(entry.get("sets"), there, given)
        returns, takes = entry.get("returns"), entry.get("takes")
        takes_s = None if takes is None else values.read_seconds(takes, there, what="`takes`")
        found[name] = Function(
            name=name,
            arguments=given,
            sets=sets,
            parts=parts,
            returns=None if returns is None else values.value(returns, there),
            takes_s=takes_s or 0.0,
            mark=key.mark,
        )
    return found


def _arguments(node: Node | None, context: Context) -> tuple[str, ...]:
    """Return the names of what a function is given."""
    given: dict[str, None] = {}
    for item in node.items if isinstance(node, Sequence) else ():
        name = key_text(item)
        police_name(context.problems, name, item.mark, what="this argument")
        if name in given:
            context.problems.add("duplicate_name", f"`{name}` is given twice", item.mark)
        given[name] = None
    return tuple(given)


def _sets(
    node: Node | None, context: Context, given: tuple[str, ...]
) -> tuple[dict[str, Form], dict[str, Expression]]:
    """Return what a function stores, by name or part, and the parts among the names."""
    sets: dict[str, Form] = {}
    entries = node.entries if isinstance(node, Mapping) else []
    for target, value in entries:
        name = key_text(target).partition("[")[0]
        if name in given or name not in context.names.value_names:
            what = "an argument" if name in given else "not a tensor that a rank holds"
            message = f"`{name}` is {what}: a function sets tensors of the rank that is called"
            context.problems.add("unknown_name", message, target.mark)
        key = key_text(target)
        while key in sets:  # the same part twice
            key += " "
        sets[key] = values.value(value, context)
    return sets, parts_in([key for key, _ in entries], context)


def function_steps(
    steps: tuple[Step, ...], functions: Mapping_[str, Function], context: Context
) -> tuple[Step, ...]:
    """Return the steps, and behind them the end of the RPC world where they call a function.

    What a call gives, and what it takes, must be what its function has.

    The end is torch's `rpc.shutdown(graceful=True)`: a rank whose program has ended still serves
    the calls of others until all have ended, so that it is a step of every rank.
    """
    asking = [step for step in steps_of(steps) if isinstance(step.operation, RemoteCall)]
    empty: dict[str, Function] = {}
    for step in asking:
        named = step.arguments.get("func")
        function = functions.get(str(named.value)) if isinstance(named, Constant) else None
        if function is not None and step.mark is not None:
            _police_call(step, step.mark, function, context)
            if function.returns is None and step.handle is not None:
                empty[step.handle] = function
    for step in steps_of(steps):
        waited = step.arguments.get("handles") if isinstance(step.operation, Waiting) else None
        kept = waited.items[0] if isinstance(waited, ListForm) else waited
        function = empty.get(str(kept.value)) if isinstance(kept, Constant) else None
        if function is not None and step.mark is not None and output_of(step.arguments):
            _note_nothing(function, step.mark, context)
    if not asking:
        return steps
    mark = asking[-1].mark
    return (*steps, Step(index=next(context.index), operation=IMPLIED["rpc.shutdown"], mark=mark))


def _count(listed: Form | None) -> int | None:
    """Return how many arguments a call gives; None where only a run tells."""
    if listed is None:
        return 0
    if isinstance(listed, ListForm):
        return len(listed.items)
    if isinstance(listed, Constant) and isinstance(listed.value, list):
        return len(listed.value)
    return None


def _police_call(step: Step, mark: Mark, function: Function, context: Context) -> None:
    count, wanted = _count(step.arguments.get("args")), len(function.arguments)
    if count is not None and count != wanted:
        takes = ", ".join(function.arguments) or "nothing"
        context.problems.add(
            "missing_argument" if count < wanted else "unknown_argument",
            f"`{function.name}` takes {wanted} argument{'' if wanted == 1 else 's'} ({takes}), and "
            f"`args` has {count}",
            mark,
        )
    if function.returns is None and output_of(step.arguments):
        _note_nothing(function, mark, context)


def _note_nothing(function: Function, mark: Mark, context: Context) -> None:
    context.problems.add(
        "unknown_argument",
        f"`{function.name}` returns nothing, so that no `output` can be held",
        mark,
        f"add `returns:` to `{function.name}`, or leave `output` out",
    )
