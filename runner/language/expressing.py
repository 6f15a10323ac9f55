"""From the text of an expression to a compiled one whose names are all known."""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING, Any

from runner.evaluation import CANNOT_COMPUTE
from runner.forms import Constant, Expression
from runner.language.context import ALWAYS, spelt_out
from runner.language.expressions import compile_expression
from runner.language.foreign import NAMES, likely
from runner.language.making import note_unmade
from runner.language.substitution import substituted, with_groups
from runner.language.tree import Node, Scalar, kind_of
from runner.problems import Mark, ScenarioError
from runner.vocabulary import DTYPES

if TYPE_CHECKING:
    from runner.language.context import Context

#: stands for a form that could not be read; the problem is already noted
FAILED = Constant(value=None)


def expression(node: Scalar, context: Context) -> Expression | Constant:
    """Return the expression in a scalar; `FAILED` where it is none. Notes unknown names."""
    node, context = _resolved(node, context)
    compiled = _compiled(node, context)
    if isinstance(compiled, Expression):
        _police_names(compiled, node, context)
    return compiled


def _compiled(node: Scalar, context: Context) -> Expression | Constant:
    if not isinstance(node.value, str):
        return Constant(value=node.value, mark=node.mark)
    if keyword.iskeyword(node.value) and node.value in context.readable:
        return FAILED  # where it is defined, it is told that the name cannot be taken
    text = substituted(node, context)
    if text is None:
        return FAILED
    try:
        return compile_expression(
            with_groups(text, context), node.mark, groups=_groups(context), limits=context.limits
        )
    except ScenarioError as error:
        context.faults.keep(error.problems)
        return FAILED


def _resolved(node: Scalar, context: Context) -> tuple[Scalar, Context]:
    found, there = context.resolve(node)
    if isinstance(found, Scalar):
        return found, there
    return node, context


def _groups(context: Context) -> frozenset[str]:
    opaque = context.inlined.opaque if context.inlined else frozenset()
    return context.names.groups.union(opaque)


def _police_names(compiled: Expression, node: Scalar, context: Context) -> None:
    if context.inlined is None:
        known = context.readable
        for name in sorted(compiled.names.difference(known).difference(DTYPES)):
            unknown_name(name, node, context)
        for name in sorted(compiled.names.intersection(context.unmade)):
            note_unmade(name, place_of(name, node), context)
    if compiled.before or "before" in compiled.calls:
        if not context.expecting:
            context.faults.add(
                "before_outside_expect",
                "`before(x, r)` has a meaning only in an expectation beside a step",
                place_of("before", node),
                "let a step carry the value: all_gather, or compute before the step",
            )
        for name in sorted(compiled.before.difference(context.names.held)):
            if context.inlined is None:
                unknown_name(name, node, context)


def unknown_name(
    name: str, node: Scalar, context: Context, *, beside: tuple[str, ...] = ()
) -> None:
    """Note that an expression reads a name that nothing defines.

    `beside` are the fixed words that may stand here as well as a name.
    """
    if name in context.names.handles:
        context.faults.add(
            "unknown_name",
            f"`{name}` is a work handle, not a value",
            place_of(name, node),
            f"complete it with `wait: {name}`; the tensors hold the result",
        )
        return
    message = f"nothing defines the name `{name}`"
    instead = NAMES.get(name)
    if name in context.names.variables:
        instead = f"`{name}` is the variable of a `for`, known only inside its `steps`"
    if instead is not None:
        context.faults.add("unknown_name", message, place_of(name, node), instead)
        return
    close = likely(name, (*context.readable, *beside))
    hint = f"defined here: {spelt_out(context.readable)}"
    if close:
        hint = f"did you mean `{close}`?"
    elif beside:
        hint += f"; keys beside names are {', '.join(beside)}"
    context.faults.add("unknown_name", message, place_of(name, node), hint)


def place_of(word: str, node: Scalar) -> Mark:
    """Return the place of a word inside a scalar, or of the scalar where it is not on its line."""
    mark = node.mark
    line = mark.source.line(mark.line)
    end = len(line)
    if mark.end_line == mark.line and mark.end_column is not None:
        end = mark.end_column - 1
    found = re.compile(rf"(?<![\w.]){re.escape(word)}(?!\w)").search(line, mark.column - 1, end)
    if found is None:
        return mark
    return Mark(
        source=mark.source,
        line=mark.line,
        column=found.start() + 1,
        end_line=mark.line,
        end_column=found.end() + 1,
    )


def constant_value(
    node: Node, context: Context, *, what: str, extra: dict[str, Any] | None = None
) -> Any:  # noqa: ANN401 -- a value has any type
    """Return the value of a number, or of an expression over parameters; None where it fails.

    `what` names the thing in messages: `world_size`. `extra` are further names it may read.
    """
    if not isinstance(node, Scalar) or node.value is None:
        context.faults.add(
            "wrong_type", f"{what} is {kind_of(node)}, not a number or an expression", node.mark
        )
        return None
    if not isinstance(node.value, str):
        return node.value
    node, context = _resolved(node, context)
    compiled = _compiled(node, context)
    if not isinstance(compiled, Expression):
        return compiled.value
    allowed = {**context.names.constants, **context_functions(), **(extra or {})}
    unset = sorted(compiled.names.difference(allowed).difference(DTYPES))
    for name in unset:
        if name in context.unmade:
            note_unmade(name, place_of(name, node), context)
        elif name in context.readable or name in ALWAYS:
            if not context.is_opaque(name):
                context.faults.add(
                    "not_constant",
                    f"{what} may depend on parameters and matrix keys only, not on `{name}`",
                    place_of(name, node),
                )
        else:
            context.faults.unknown(
                "unknown_name",
                f"nothing defines the name `{name}`",
                name,
                context.names.constants,
                place_of(name, node),
                listed="parameters and matrix keys are",
            )
    if unset:
        return None
    try:
        return compiled.evaluate({**allowed, "__builtins__": {}})
    except CANNOT_COMPUTE as error:
        reason = str(error).strip() or type(error).__name__
        message = f"`{node.text.strip()}` cannot be computed: {reason}"
        context.faults.add("cannot_compute", message, node.mark)
        return None


def context_functions() -> dict[str, Any]:
    """Return the functions that a constant expression may call."""
    from runner.language.functions import numpy_arrays  # noqa: PLC0415 -- NumPy only if needed

    return dict(numpy_arrays().functions())
