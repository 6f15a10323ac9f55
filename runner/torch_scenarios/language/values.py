"""Nodes -> value expressions: expressions, selectors, words, durations, tensors, objects."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import pairwise
from typing import Any, TypeVar

from msgspec.structs import replace

from torch_scenarios.errors import Mark, Problem, ScenarioError, nearest
from torch_scenarios.expressions.compile import COMPARE, compile_expression, explain_lone_word
from torch_scenarios.expressions.evaluator import CANNOT_COMPUTE, LONGEST_S
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.signatures import FUNCTION_NAMES, SIGNATURES
from torch_scenarios.expressions.values import (
    Constant,
    Expression,
    Form,
    ListForm,
    Objects,
    PerRank,
    Selector,
    TypedValue,
)
from torch_scenarios.language.context import (
    ALWAYS,
    NAMES,
    Context,
    Problems,
    correct,
    likely,
    note_unmade,
    spelt_out,
)
from torch_scenarios.language.keys import COMPUTED, ELSE, LOCAL, LONG_FORM, TOLERANCES
from torch_scenarios.language.validation import fits
from torch_scenarios.source.repairs import extent, respell
from torch_scenarios.source.tree import (
    Mapping,
    Node,
    Scalar,
    Sequence,
    key_text,
    kind_of,
    plain,
    source_text,
)
from torch_scenarios.vocabulary import BACKEND, DTYPES, FIXED_WORDS, WORLD

# -------------------------------------------------------------------------------------------------
# Expressions of a used file, rewritten into the names of the file that uses it.
#
# Rewritten is the syntax tree, never the text, so that precedence holds: `x * 2` with
# `x: "a + b"` is `(a + b) * 2`. The variables of comprehensions are renamed where they would
# capture a name of the using file.


def substitute(node: Scalar, context: Context) -> str | None:
    """Return the text of an expression in the names of the whole scenario.

    None where it cannot be had; the problem is noted. A text that is no Python is returned as it
    is: compiling it will say what is wrong.

        ring.yaml (inputs: [x, n])     "range(n - 1)"
        use: ring.yaml with {n: size}  "range(size - 1)"
        use: ring.yaml with {n: "a + b"}   "range(a + b - 1)", and `n * 2` is `(a + b) * 2`
    """
    if context.inlined is None:
        return str(node.value)
    tree = _parse(str(node.value), context)
    if tree is None:
        return str(node.value)
    rewriter = _Rewriter(node, context)
    rewritten = rewriter.visit(tree)
    return None if rewriter.failed else ast.unparse(ast.fix_missing_locations(rewritten))


def replace_groups(text: str, context: Context) -> str:
    """Return an expression with the group's name in place of a parameter that holds it.

        matrix: {g: [even, odd]}
        "group_rank(g)"        group_rank(even) in one case, group_rank(odd) in the other
        "g == even"            stays: here the parameter is compared with a word

    Groups are no values that an evaluator could look up under another name: `group_rank` is
    compiled to a look-up by the group's own name.
    """
    groups = {*context.names.groups, WORLD}
    held = {
        name: value
        for name, value in context.names.constants.items()
        if isinstance(value, str) and value in groups and name in text and name != BACKEND
    }
    tree = _parse(text, context) if held else None
    if tree is None:
        return text
    compared = {
        operand
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare)
        for operand in _find_words(node)
    }
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in held and node not in compared
    ]
    for node in found:
        node.id = held[node.id]
    return ast.unparse(tree) if found else text


def _find_words(node: ast.Compare) -> Iterator[ast.expr]:
    """Yield the operands of a comparison whose other side is a fixed word, or a list of some."""
    operands = [node.left, *node.comparators]
    for one, other in pairwise(operands):
        if _are_words(other):
            yield one
        if _are_words(one):
            yield other


def _are_words(node: ast.expr) -> bool:
    listed = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    return any(isinstance(each, ast.Name) and each.id in FIXED_WORDS for each in listed)


def _parse(text: str, context: Context) -> ast.expr | None:
    if len(text) > context.limits.max_expression_chars:
        return None
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Rewriter(ast.NodeTransformer):
    """Replaces the free names of one expression of a used file.

    A name may be bound three times over: by a comprehension in the expression, by the used file
    (its tensors, loops, `let`), and as an input. The innermost wins, as in Python.
    """

    def __init__(self, node: Scalar, context: Context) -> None:
        self.node = node
        self.context = context
        self.failed = False
        self._bound: dict[str, str] = {}
        self._fresh = 0

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Replace an input by what `with:` gave, and a name of the file by its new name."""
        name = node.id
        context, inlined = self.context, self.context.inlined
        assert inlined is not None
        if name in self._bound:
            return ast.Name(id=self._bound[name], ctx=node.ctx)
        if name in context.loops or name in context.let_names or name in inlined.renamed:
            return ast.Name(id=context.final(name), ctx=node.ctx)
        if name in inlined.bindings:
            binding = inlined.bindings[name]
            given = _parse_given(binding.node, binding.context)
            if given is None:
                self._fail_on(name)
                return node
            return given
        if name not in (*ALWAYS, *DTYPES) and name not in inlined.opaque:
            unknown_name(name, self.node, context)
            self.failed = True
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Compare what `with:` gave with a fixed word; where it is a word, the answer is known.

        `op == sum` in a used file, with `op: max` given, would read `max == sum`, which compares
        two words and is refused. It is `False`, and is written as that. What is given as a name of
        the outer file (`op: which`) is compared there.
        """
        inlined = self.context.inlined
        assert inlined is not None
        one, other = node.left, node.comparators[0]
        if _are_words(one) and not isinstance(one, ast.List | ast.Tuple):
            one, other = other, one
        known = isinstance(one, ast.Name) and one.id not in self._bound and _are_words(other)
        if len(node.ops) > 1 or not known:
            return self.generic_visit(node)
        assert isinstance(one, ast.Name)
        binding = inlined.bindings.get(one.id)
        given = _parse_given(binding.node, binding.context) if binding is not None else None
        if not isinstance(given, ast.Name) or given.id not in FIXED_WORDS:
            kept = ast.Compare(left=self.visit(one), ops=node.ops, comparators=[other])
            return kept if node.left is one else _mirror(kept)
        listed = other.elts if isinstance(other, ast.List | ast.Tuple) else [other]
        is_there = given.id in {each.id for each in listed if isinstance(each, ast.Name)}
        denied = isinstance(node.ops[0], ast.NotEq | ast.NotIn)
        return ast.Constant(value=is_there != denied)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Leave the name of a mesh's group as it is: `mesh.dp`."""
        if ast.unparse(node) not in self.context.names.groups:
            node.value = self.visit(node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Rewrite the arguments; the function's name is no variable."""
        node.args = [self.visit(argument) for argument in node.args]
        for each in node.keywords:
            each.value = self.visit(each.value)
        if not isinstance(node.func, ast.Name):
            node.func = self.visit(node.func)
        return node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        """Rename the comprehension's own variables, so that they capture nothing.

        `[i * n for i in range(3)]` with `n: "i + 1"`, whose `i` is a loop of the using file, is
        `[i_1 * (i + 1) for i_1 in range(3)]`. The iterable of a `for` is read before its variable
        is bound, the conditions after it, as Python does.
        """
        outer = dict(self._bound)
        for generator in node.generators:
            generator.iter = self.visit(generator.iter)
            for target in ast.walk(generator.target):
                if isinstance(target, ast.Name):
                    self._fresh += 1
                    self._bound[target.id] = f"{target.id}_{self._fresh}"
                    target.id = self._bound[target.id]
            generator.ifs = [self.visit(test) for test in generator.ifs]
        node.elt = self.visit(node.elt)
        self._bound = outer
        return node

    def _fail_on(self, name: str) -> None:
        self.failed = True
        self.context.problems.add(
            "input_in_expression",
            f"the input `{name}` is given as a mapping, and is used inside an expression here",
            self.node.mark,
            "give a name or an expression for it",
        )


def _mirror(node: ast.Compare) -> ast.Compare:
    """Return `==` or `!=` with its sides exchanged."""
    return ast.Compare(left=node.comparators[0], ops=node.ops, comparators=[node.left])


def _parse_given(node: Node, context: Context) -> ast.expr | None:
    """Return what `with:` gave as a syntax tree in the names of the whole scenario.

    None where it has no such form: a mapping by rank cannot stand inside an expression.
    """
    node, context = context.resolve(node)
    match node:
        case Scalar(value=str()):
            text = substitute(node, context)
            parsed = None if text is None else _parse(text, context)
            if text is not None and parsed is None:
                _complain(node, context)
            return parsed
        case Scalar():
            return _literal(node.value)
        case Sequence():
            items = [_parse_given(item, context) for item in node.items]
            kept = [item for item in items if item is not None]
            return ast.List(elts=kept, ctx=ast.Load()) if len(kept) == len(items) else None
        case Mapping():
            return None


def _literal(value: float | bool | None) -> ast.expr:  # noqa: FBT001 -- a YAML scalar
    """Return the syntax tree of a scalar.

    Python has no literal for infinity, nor for negative numbers.
    """
    if isinstance(value, float) and value in {float("inf"), float("-inf")}:
        return ast.parse("1e999" if value > 0 else "-1e999", mode="eval").body
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        return ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=-value))
    return ast.Constant(value=value)


def _complain(node: Scalar, context: Context) -> None:
    try:
        compile_expression(str(node.value), node.mark, limits=context.limits)
    except ScenarioError as error:
        context.problems.keep(error.problems)


# -------------------------------------------------------------------------------------------------
# From the text of an expression to a compiled one whose names are all known.

#: stands for a form that could not be read; the problem is already noted
FAILED = Constant(value=None)


def wrong_type(node: Node, context: Context, what: str, wanted: str) -> Constant:
    """Note that a value is of another type than the tables of models and strategies ask for.

    What the schema says of a key it has told before; it does not know what a layer takes.
    """
    message = f"{what} cannot be {kind_of(node)}"
    context.problems.add("wrong_type", message, node.mark, f"write {wanted}")
    return FAILED


def expression(node: Scalar, context: Context) -> Expression | Constant:
    """Return the expression in a scalar; `FAILED` where it has none. Notes unknown names."""
    node, context = _resolve(node, context)
    compiled = _compile(node, context)
    if isinstance(compiled, Expression):
        _police_names(compiled, node, context)
    return compiled


def _compile(node: Scalar, context: Context) -> Expression | Constant:
    """Return the compiled expression in the names of the scenario; `FAILED` where nothing compiles.

    It is given the names that hold words (`_words`), so that `op == sum` reads `sum` as the reduce
    op, and `sum(x)` as the function.
    """
    if not isinstance(node.value, str):
        return Constant(value=node.value, mark=node.mark)
    if keyword.iskeyword(node.value) and node.value in context.readable:
        return FAILED  # its definition has the problem: the name cannot be taken
    text = substitute(node, context)
    if text is None:
        return FAILED
    try:
        compiled = compile_expression(
            replace_groups(text, context),
            node.mark,
            groups=_groups(context),
            words=_words(context),
            listed=context.names.words.difference(context.readable),
            known=frozenset(context.readable).difference(context.unmade),
            limits=context.limits,
        )
    except ScenarioError as error:
        context.problems.keep(_add_repair(_blame_comma(each, node)) for each in error.problems)
        return FAILED
    if BACKEND in compiled.names:
        context.asked.add(BACKEND)
    return compiled


def _blame_comma(problem: Problem, node: Scalar) -> Problem:
    """Return a problem of an expression, with the help for one that a comma of YAML has cut off.

    `{ranks: range(0, 2)}` has the value `range(0`, and a key `2)`.
    """
    covered = extent(node.mark) if node.mark is not None else None
    if node.mark is None or covered is None or not problem.message.endswith("is never closed"):
        return problem
    if not node.mark.source.text[covered[1] :].lstrip().startswith(","):
        return problem
    hint = "quote the expression: within `{...}` and `[...]` a comma ends what has no quotes"
    return replace(problem, hint=hint)


def _add_repair(problem: Problem) -> Problem:
    """Return a problem of an expression, with the repair of a misspelt function."""
    covered = extent(problem.mark) if problem.mark is not None else None
    if problem.code != "unknown_function" or problem.mark is None or covered is None:
        return problem
    word = problem.mark.source.text[slice(*covered)]
    close = nearest(word, FUNCTION_NAMES)
    repair = correct(word, close, FUNCTION_NAMES, problem.mark)
    return replace(problem, repair=repair if f"`{close}`" in (problem.hint or "") else None)


def _words(context: Context) -> frozenset[str]:
    """Return the names that hold a word: parameters, keys of the matrix and of `cases`, inputs."""
    opaque = context.inlined.opaque if context.inlined else frozenset()
    held = (name for name, value in context.names.constants.items() if isinstance(value, str))
    return opaque.union(held)


def _resolve(node: Scalar, context: Context) -> tuple[Scalar, Context]:
    found, there = context.resolve(node)
    if isinstance(found, Scalar):
        return found, there
    return node, context


def _groups(context: Context) -> frozenset[str]:
    opaque = context.inlined.opaque if context.inlined else frozenset()
    dotted = (name for name in context.names.computed if "." in name)
    return context.names.groups.union(opaque, dotted)


def _police_names(compiled: Expression, node: Scalar, context: Context) -> None:
    """Note each name that nothing defines, and `before` outside of an expectation.

    In a used file names are checked while they are rewritten: here they are the outer file's
    already.
    """
    if context.inlined is None:
        known = context.readable
        for name in sorted(compiled.names.difference(known)):
            unknown_name(name, node, context, beside=_find_meant_word(name, node, context))
        for name in sorted(compiled.names.intersection(context.unmade)):
            note_unmade(name, place_of(name, node), context)
    if compiled.before or "before" in compiled.calls:
        if not context.expecting:
            context.problems.add(
                "before_outside_expect",
                "`before(x, r)` has a meaning only in an expectation at a step",
                place_of("before", node),
                "let a step carry the value: all_gather, or compute before the step",
            )
        for name in sorted(compiled.before.difference(context.names.value_names)):
            if context.inlined is None:
                unknown_name(name, node, context)


def _find_meant_word(name: str, node: Scalar, context: Context) -> tuple[str, ...]:
    """Return the fixed word that a name misspells, if that word is known at its place.

    `dtype == flaot32` may mean `float32`: the corrected text is compiled, and only where the word
    then is no name (it is compared with a parameter) is it offered. Otherwise the help would lead
    from one refused spelling to another.
    """
    close = likely(name, (*FIXED_WORDS, *context.names.words))
    if close is None or not _words(context):
        return ()
    text = re.sub(rf"(?<![\w.]){re.escape(name)}(?!\w)", close, node.text)
    corrected = _compile(Scalar(node.mark, text, text), context.change(problems=Problems()))
    known = isinstance(corrected, Expression) and close not in corrected.names
    return (close,) if known else ()


def unknown_name(
    name: str, node: Scalar, context: Context, *, beside: tuple[str, ...] = ()
) -> None:
    """Note that an expression reads a name that nothing defines.

    `beside` are the fixed words that may stand here as well as a name. The hint is the first that
    fits: what the name is instead (a work handle, a loop's variable outside of its loop, `rank0`, a
    function without its call, `true`), a name that is near, all names.
    """
    if name in context.names.handles:
        context.problems.add(
            "unknown_name",
            f"`{name}` is a work handle, not a value",
            place_of(name, node),
            f"complete it with `wait: {name}`; the tensors hold the result",
        )
        return
    if name in FIXED_WORDS:
        context.problems.add("fixed_word", explain_lone_word(name), place_of(name, node), COMPARE)
        return
    message = f"nothing defines the name `{name}`"
    instead = NAMES.get(name)
    numbered = re.fullmatch(r"rank_?(\d+)", name)
    if numbered:
        instead = f"a rank is its number: `{numbered[1]}`"
    if name in SIGNATURES:
        instead = f"a function is called: `{SIGNATURES[name].usage}`"
    if name in context.names.variables:
        instead = f"`{name}` is the variable of a `for`, known only inside its `steps`"
    if name in context.names.numbers:
        instead = (
            f"`let` names `{name}` elsewhere: it is known after that step, in its list of steps"
        )
    if instead is not None:
        context.problems.add("unknown_name", message, place_of(name, node), instead)
        return
    close = likely(name, (*context.readable, *beside))
    hint = f"defined here: {spelt_out(context.readable)}"
    if close:
        hint = f"did you mean `{close}`?"
    elif len(beside) > 1:
        hint += f"; the other keys are {', '.join(beside)}"
    mark, known = place_of(name, node), (*context.readable, *beside)
    context.problems.add("unknown_name", message, mark, hint, correct(name, close, known, mark))


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


def _unknown_constant(name: str, node: Scalar, context: Context, extra: Iterable[str]) -> None:
    message = f"nothing defines the name `{name}`"
    known = {*context.names.constants, *extra} - {"backend"}
    mark, listed = place_of(name, node), "parameters and matrix keys are"
    if known:
        context.problems.unknown("unknown_name", message, name, known, mark, listed=listed)
    else:
        context.problems.add("unknown_name", message, mark, "define it under `parameters:`")


def constant_value(
    node: Node, context: Context, *, what: str, extra: dict[str, Any] | None = None
) -> Any:
    """Return the value of a number, or of an expression over parameters; None where it fails.

    `what` names the thing in messages: `world_size`. `extra` are further names it may read.

    Such a value is the same on every rank and in the whole case: how many ranks there are, how
    often a loop turns, how long a timeout is. So tensors and `rank` are refused (`not_constant`),
    even where they would be alike. None is also what a parameter `null` gives; then nothing is
    noted.
    """
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return plain(node)
    node, context = _resolve(node, context)
    compiled = _compile(node, context)
    if not isinstance(compiled, Expression):
        return compiled.value
    allowed = {**context.names.constants, **context_functions(), **(extra or {})}
    unset = sorted(compiled.names.difference(allowed))
    for name in unset:
        if name in context.unmade:
            note_unmade(name, place_of(name, node), context)
        elif name in context.readable or name in ALWAYS:
            if not context.is_opaque(name):
                context.problems.add(
                    "not_constant",
                    f"{what} may depend on parameters and matrix keys only, not on `{name}`",
                    place_of(name, node),
                )
        elif name in FIXED_WORDS:
            context.problems.add(
                "fixed_word", explain_lone_word(name), place_of(name, node), COMPARE
            )
        else:
            _unknown_constant(name, node, context, extra or ())
    if unset:
        return None
    try:
        return compiled.evaluate({**allowed, "__builtins__": {}})
    except CANNOT_COMPUTE as error:
        reason = str(error).strip() or type(error).__name__
        message = f"`{node.text.strip()}` cannot be computed: {reason}"
        context.problems.add("cannot_compute", message, node.mark)
        return None


def constant_number(
    node: Node, context: Context, *, what: str, extra: dict[str, Any] | None = None
) -> float | None:
    """Return a number that is the same on every rank; note anything else, and return None.

    `extra` are names that it may read next to parameters and matrix keys, as `world_size`.
    """
    found = constant_value(node, context, what=what, extra=extra)
    if isinstance(found, int | float) and not isinstance(found, bool):
        return float(found)
    if found is not None or (isinstance(node, Scalar) and node.value is None):
        wrong_type(node, context, what, "a number, or an expression that gives one")
    return None


def context_functions() -> dict[str, Any]:
    """Return the functions that a constant expression may call: those over numbers and arrays."""
    return dict(numpy_arrays().functions())


# -------------------------------------------------------------------------------------------------
# Who: selectors, mappings from ranks to anything, and the integers that ranks are.

T = TypeVar("T")


def resolve_given(node: Node, context: Context, part: str) -> tuple[Node, Context]:
    """Return what stands here, or what `with:` gave for an input whose name stands here.

    What was given is held against the schema only now: `part` is the one of this place. The schema
    of the using file cannot: it does not know whether `x:` below `with:` is a tensor, a rank or a
    tag. What does not fit becomes an empty scalar, and is noted at the place where it was given.
    """
    found, there = context.resolve(node)
    if found is node or fits(found, part, context.problems, f"what is given for `{_text(node)}`"):
        return found, there
    return Scalar(found.mark, None, ""), there


def _text(node: Node) -> str:
    return node.text if isinstance(node, Scalar) else source_text(node)


def selector(node: Node, context: Context) -> Selector:
    """Return which ranks a node selects: an integer, a list of integers or an expression.

    0                      rank 0
    [0, 3]                 ranks 0 and 3
    "rank % 2 == 0"        each rank on which it is true
    "range(4)", even       each rank that is in the collection, or in the group
    "x[0] > 3"             by what the rank holds when it comes to the step
    """
    text = source_text(node)
    node, context = resolve_given(node, context, "selector")
    match node:
        case Scalar(value="else"):
            message = "`else` is the rest of a mapping by rank, not a selector"
            hint = "write a condition such as `rank > 0`; left out, `ranks` is everyone"
            context.problems.add("bad_selector", message, node.mark, hint)
            form: Form = FAILED
        case Scalar(value=str()):
            form = expression(node, context)
        case Sequence():
            form = integers(node, context)
            for item in node.items:
                _police_rank(item, context)
        case Scalar(value=bool() | int()):
            form = Constant(value=node.value, mark=node.mark)
            _police_rank(node, context)
        case _:  # a key, of which the schema knows only the text
            fits(node, "selector", context.problems, "a selector")
            form = FAILED
    return Selector(form=form, text=text, mark=node.mark)


def _police_rank(node: Node, context: Context) -> None:
    """Note a number that is not a rank of the world: a negative one never is.

    A number beyond the world is passed over where the file has cases of several sizes, and in a
    used part, which is written for any world.
    """
    if not isinstance(node, Scalar) or node.value.__class__ is not int:
        return
    if node.value < 0:
        context.problems.add(
            "bad_selector",
            f"{node.value} is not a rank, so it selects no rank",
            node.mark,
            "ranks count from 0; the last one is `world_size - 1`",
        )
    elif context.ranks is not None and context.inlined is None and node.value >= context.ranks:
        number = f"{context.ranks} rank{'' if context.ranks == 1 else 's'}"
        context.problems.add(
            "rank_out_of_range",
            f"{node.value} is not a rank of this world of {number}",
            node.mark,
            f"ranks count from 0; the last one is {context.ranks - 1}",
        )


def read_per_rank(
    node: Mapping,
    context: Context,
    build: Callable[[Node, Context], T],
    *,
    keys: Collection[str] = (),
) -> PerRank[T]:
    """Return a mapping from selectors to what `build` makes of its values.

    The first selector that matches wins, so that their order is kept; `else` is the rest wherever
    it is, and a rank that none selects has no value: its name does not exist there.

    `keys` are those of the mapping that may be here in its place: a selector may misspell one.
    `{dtpye: int64, value: 1}` would otherwise be a mapping whose selectors nothing defines.
    """
    branches: list[tuple[Selector, T]] = []
    otherwise: T | None = None
    places: list[Mark] = []
    rest: list[Mark] = []
    for key, value in node.entries:
        if key_text(key) == ELSE:
            otherwise = build(value, context)
            rest.append(value.mark)
        elif key_text(key) not in context.readable and likely(key_text(key), keys):
            message = f"unknown key `{key_text(key)}` of a value's long form"
            context.problems.unknown("unknown_key", message, key_text(key), keys, key.mark)
        else:
            branches.append((selector(key, context), build(value, context)))
            places.append(value.mark)
    return PerRank(
        branches=tuple(branches),
        otherwise=otherwise,
        places=(*places, *rest),
        mark=node.mark,
    )


def integer(node: Node, context: Context) -> Form:
    """Return an integer, an expression, or a mapping from ranks to these."""
    node, context = resolve_given(node, context, "integer")
    match node:
        case Mapping():
            return read_per_rank(node, context, integer)
        case Scalar(value=str()):
            return expression(node, context)
        case _:
            return Constant(value=plain(node), mark=node.mark)


def numbers(node: Node, context: Context) -> Form:
    """Return a number, a list of numbers, an expression, or a mapping from ranks to these.

    It is what `let` names: Python's numbers, and no tensor.
    """
    node, context = resolve_given(node, context, "number_value")
    match node:
        case Scalar(value=str()):
            return expression(node, context)
        case Sequence():
            return read_list(node, context, expression_or_number)
        case Mapping():
            return read_per_rank(node, context, numbers)
        case _:
            return Constant(value=plain(node), mark=node.mark)


def expression_or_number(node: Node, context: Context) -> Form:
    """Return an item of a list of numbers."""
    assert isinstance(node, Scalar)
    return expression(node, context)


def integers(node: Node, context: Context) -> Form:
    """Return a list of integers, an expression that yields one, or a mapping from ranks to it."""
    node, context = resolve_given(node, context, "integers")
    match node:
        case Sequence():
            return read_list(node, context, integer)
        case Mapping():
            return read_per_rank(node, context, integers)
        case Scalar(value=str()):
            return expression(node, context)
        case Scalar():
            return Constant(value=None, mark=node.mark)


def read_list(node: Sequence, context: Context, build: Callable[[Node, Context], Form]) -> Form:
    """Return a list: data where every item is, otherwise a list of forms.

    A literal of 10,000 numbers is one :class:`Constant`, and not as many forms that each rank
    evaluates at each step.
    """
    if all(isinstance(item, Scalar) and not isinstance(item.value, str) for item in node.items):
        for item in node.items:
            if isinstance(item, Scalar) and item.value is None:
                context.problems.add("bad_value", "a list of numbers has an empty item", item.mark)
        plain = [item.value for item in node.items if isinstance(item, Scalar)]
        return Constant(value=plain, mark=node.mark)
    items = tuple(build(item, context) for item in node.items)
    if all(isinstance(item, Constant) for item in items):
        return Constant(value=[_constant(item) for item in items], mark=node.mark)
    return ListForm(items=items, mark=node.mark)


def _constant(form: Form) -> Any:
    return form.value if isinstance(form, Constant) else None


# -------------------------------------------------------------------------------------------------
# Fixed names: dtypes, reduce ops, groups, kinds, and parameters that hold one.


#: how a parameter is written in GitHub's workflows, in shells, in Jinja
_TEMPLATE = re.compile(r"\$?\{{0,2}\s*(\w+)\s*\}{0,2}")


def read_fixed(
    node: Node, context: Context, known: Collection[str], *, code: str, what: str
) -> str | None:
    """Return a fixed name, or the one that a parameter of that name holds; None where it fails.

        known   the words that may stand here, or the names of the file's groups, handles, models
        code    of the problem: unknown_dtype, unknown_group, ...
        what    the name's sort in messages, by which foreign words are known: a dtype is `double`

    Not resolved is a parameter inside a used file: a used file sees its inputs alone.
    """
    node, context = resolve_given(node, context, "handle")
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        return None
    name = context.final(node.value)
    if name in known or context.is_opaque(name):
        return name
    constants = context.names.constants if context.inlined is None else {}
    if name in constants:
        held = constants[name]
        if isinstance(held, str) and held in known:
            return held
        context.problems.add(
            code,
            f"the value {constants[name]!r} of `{name}` is not a {what}",
            node.mark,
            _list_known(known),
        )
        return None
    dims = tuple(each for each in sorted(known) if each.startswith(f"{name}."))
    if dims:
        context.problems.add(
            code,
            f"`{name}` is a mesh, not one {what}",
            node.mark,
            f"name a dimension: {', '.join(dims)}",
        )
        return None
    if (bare := _TEMPLATE.fullmatch(name)) and bare[1] in constants:
        context.problems.add(
            code,
            f"unknown {what} `{node.value}`",
            node.mark,
            f"write the name alone: `{bare[1]}` is a parameter",
            respell(node.mark, node.value, bare[1], sure=True),
        )
        return None
    context.problems.unknown(
        code,
        f"unknown {what} `{node.value}`",
        name,
        known,
        node.mark,
        listed="known are",
        sort=what,
    )
    return None


def _list_known(known: Collection[str]) -> str:
    return f"known are: {spelt_out(known)}"


def read_fixed_form(
    node: Node, context: Context, known: Collection[str], *, code: str, what: str
) -> Form:
    """Return a fixed name, or a mapping from ranks to such names; `null` is torch's default."""
    node, context = resolve_given(node, context, "group")
    if isinstance(node, Scalar) and node.value is None:
        return Constant(value=None, mark=node.mark)
    if isinstance(node, Mapping):
        return read_per_rank(
            node,
            context,
            lambda item, there: read_fixed_form(item, there, known, code=code, what=what),
        )
    return Constant(value=read_fixed(node, context, known, code=code, what=what), mark=node.mark)


# -------------------------------------------------------------------------------------------------
# Durations: `10s`, `0.5s`, `200ms`, `2min`, a bare number of seconds, an expression.

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(us|ms|s|min|h)")


_UNIT_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


def duration_s(text: str) -> float | None:
    """Return the seconds in `10s`, `0.5s`, `200ms`, `2min`; None for any other text.

    >>> duration_s("200ms"), duration_s("2 min"), duration_s("2 m")
    (0.2, 120.0, None)
    """
    found = _DURATION.fullmatch(text.strip())
    return float(found[1]) * _UNIT_S[found[2]] if found else None


def seconds(node: Node, context: Context, *, what: str = "this") -> Form:
    """Return a duration, a number or an expression in seconds, or a mapping from ranks to these.

    A duration with its unit is known when the file is read; an expression is computed on each rank,
    when it comes to the step.
    """
    node, context = resolve_given(node, context, "seconds")
    match node:
        case Mapping():
            return read_per_rank(node, context, lambda item, there: seconds(item, there, what=what))
        case Scalar(value=str()):
            stated = _read_seconds(node, context)
            if stated is not None:
                _police(stated, node, context, what)
                return Constant(value=stated, mark=node.mark)
            if _is_no_duration(node, context):
                return FAILED
            return expression(node, context)
        case Scalar(value=int() | float()):
            _police(node.value, node, context, what)
            return Constant(value=float(node.value), mark=node.mark)
        case _:
            return Constant(value=None, mark=node.mark)


def _police(stated: float, node: Node, context: Context, what: str) -> None:
    """Note a duration that no clock can wait for, or that is too long."""
    if not stated <= LONGEST_S:
        hint = "one sleep, or timeout, is at most an hour: 3600s, 1h"
        message = f"{what} is longer than an hour" if stated > 0 else f"{what} is not a duration"
        context.problems.add("bad_duration", message, node.mark, hint)


def _read_seconds(node: Scalar, context: Context) -> float | None:
    """Return the seconds in a text, or in a parameter of that name; None for an expression."""
    held = context.names.constants.get(str(node.value))
    return duration_s(held if isinstance(held, str) else str(node.value))


def is_duration(node: Scalar, context: Context) -> bool:
    """Whether a text states a duration with its unit, or names a parameter that does."""
    return isinstance(node.value, str) and _read_seconds(node, context) is not None


def read_seconds(node: Node, context: Context, *, what: str) -> float | None:
    """Return a duration that is the same on every rank, in seconds; None where it fails."""
    node, context = resolve_given(node, context, "duration")
    stated: Any = None
    if isinstance(node, Scalar) and isinstance(node.value, str):
        stated = _read_seconds(node, context)
        if stated is None and _is_no_duration(node, context):
            return None
    if stated is None:
        stated = constant_value(node, context, what=what)
    if isinstance(stated, int | float) and not isinstance(stated, bool) and 0 < stated <= LONGEST_S:
        return float(stated)
    if stated is not None:
        context.problems.add(
            "bad_duration",
            f"{what} must be a duration greater than zero, and at most an hour",
            node.mark,
            "write it as 10s, 0.5s, 200ms or 2min",
        )
    return None


def _is_no_duration(node: Scalar, context: Context) -> bool:
    """Note a number with an unknown unit, or a negative one."""
    if not re.fullmatch(r"[-+]?[0-9.]+(e-?[0-9]+)?\s*[A-Za-zµ]+", node.text):
        return False
    hint = "the units are us, ms, s, min and h: 10s, 0.5s, 200ms, 2min"
    if node.text.startswith("-") and duration_s(node.text[1:]) is not None:
        hint = "a duration is never negative: 10s, 0.5s, 200ms"
    context.problems.add("bad_duration", f"`{node.text}` is not a duration", node.mark, hint)
    return True


# -------------------------------------------------------------------------------------------------
# What a tensor holds: data, an expression, the long form with a dtype, one value a rank.


def value(node: Node, context: Context) -> Form:
    """Return a tensor's value: data, an expression, a per-rank mapping or the long form.

    [1, 2]                           float32 of shape (2,)
    "full(5, rank + 1)"              computed on each rank
    {0: [1, 2], else: [0, 0]}        by rank
    {dtype: int64, value: [1, 2]}    the long form
    """
    node, context = resolve_given(node, context, "value")
    match node:
        case Scalar(value=str()):
            return expression(node, context)
        case Scalar():
            return Constant(value=node.value, mark=node.mark)
        case Sequence():
            return _rectangular(read_list(node, context, value), context)
        case Mapping() if is_long_form(node):
            return long_form(node, context)
        case Mapping():
            return read_per_rank(node, context, value, keys=LONG_FORM)


_LONG_KEYS = frozenset({*LONG_FORM, *TOLERANCES})

#: the keys of the long form in an expectation
EXPECTED_FORM = _LONG_KEYS.union(LOCAL)


def is_long_form(node: Node, *, expected: bool = False) -> bool:
    """Whether a node is a value's long form rather than a mapping from ranks to values.

    One key is enough (`{dtype: int64}`): none of them selects a rank.
    """
    known = EXPECTED_FORM if expected else _LONG_KEYS
    return isinstance(node, Mapping) and any(key_text(key) in known for key, _ in node.entries)


def long_form(node: Mapping, context: Context) -> TypedValue:
    """Return `{value: ..., dtype: ..., shape: ...}`, in expectations with `rtol` and `atol`.

    With `placements` it is a local view: `value` and `shape` are what the rank itself holds of a
    distributed tensor, as `DTensor.to_local()` gives it, and not the whole.
    """
    fields: dict[str, Any] = {"value": None}
    for key, item in node.entries:
        match key_text(key):
            case "value":
                fields["value"] = value(item, context)
            case "dtype":
                fields["dtype"] = dtype(item, context)
            case "shape":
                fields["shape"] = sizes(item, context)
            case "placements":
                fields["placements"] = placements(item, context)
            case name:
                fields[name] = _tolerance(item, context, name)
    return TypedValue(**fields, mark=node.mark)


def placements(node: Node, context: Context) -> Form:
    """Return placements: a list of them, an expression that yields one, or one for each rank."""
    node, context = resolve_given(node, context, "placements")
    match node:
        case Sequence():
            items = tuple(
                expression(item, context) for item in node.items if isinstance(item, Scalar)
            )
            return ListForm(items=items, mark=node.mark)
        case Mapping():
            return read_per_rank(node, context, placements)
        case Scalar():
            form = expression(node, context)
            if isinstance(form, Expression) and _is_one_placement(form.text, context):
                message = f"`{node.text}` is one placement, where a list of them is wanted"
                hint = f"write one for each mesh dimension: `placements: [{node.text}]`"
                context.problems.add("wrong_type", message, node.mark, hint)
            return form


def _is_one_placement(text: str, context: Context) -> bool:
    """Whether an expression, or the parameter that it names, is one placement and no list."""
    stated = context.names.constants.get(text, text)
    return isinstance(stated, str) and bool(re.match(r"\s*(Shard|Replicate|Partial)\b", stated))


def dtype(node: Node, context: Context) -> Form:
    """Return a dtype's name, or a mapping from ranks to such names."""
    return read_fixed_form(node, context, DTYPES, code="unknown_dtype", what="dtype")


def _tolerance(node: Node, context: Context, name: str) -> float:
    """Return a relative or absolute tolerance, zero or more; 0 where it is wrong."""
    stated = constant_value(node, context, what=name)
    if isinstance(stated, int | float) and not isinstance(stated, bool) and stated >= 0:
        return float(stated)
    if stated is not None:
        context.problems.add(
            "bad_value",
            f"{name} must be a number, zero or more",
            node.mark,
            f"write `{name}: 1e-3`",
        )
    return 0.0


def _rectangular(form: Form, context: Context) -> Form:
    """Refuse rows that differ in length; in an expectation they are a list of tensors.

    A name that holds a list of tensors, as `gather_list` does, may be expected as `[[1], [2, 3]]`.
    """
    if not isinstance(form, Constant) or _shape(form.value) is not None:
        return form
    rows = form.value
    if context.expecting and all(isinstance(row, list) and _shape(row) for row in rows):
        return ListForm(
            items=tuple(Constant(value=row, mark=form.mark) for row in rows), mark=form.mark
        )
    context.problems.add(
        "ragged_list",
        "the rows of this list differ in length, so it is not a tensor",
        form.mark,
        "a list of tensors is written as an expression: `[zeros(1), zeros(2)]`",
    )
    return form


def _shape(data: Any) -> tuple[int, ...] | None:
    """Return the shape of nested lists, `()` of a number; None where rows differ."""
    if not isinstance(data, list):
        return ()
    shapes = {_shape(item) for item in data}
    if not shapes:
        return (0,)
    inner = shapes.pop()
    return None if shapes or inner is None else (len(data), *inner)


def sizes(node: Node, context: Context) -> Form:
    """Return a shape: an integer, a list of integers or an expression."""
    node, context = resolve_given(node, context, "shape")
    if isinstance(node, Scalar) and isinstance(node.value, int):
        return integer(node, context)
    return integers(node, context)


# -------------------------------------------------------------------------------------------------
# Plain YAML values for the object collectives: a string is a string, `{expr: ...}` computed.


def object_value(node: Node, context: Context) -> Form:
    """Return an entry of `objects:`: a plain value, or a mapping from ranks to plain values.

    A mapping whose keys are all integers is by rank, `{0: a, 1: b}`. An object that is such a
    mapping itself is written below a rank, or computed.
    """
    if _is_per_rank(node):
        assert isinstance(node, Mapping)
        return read_per_rank(node, context, _plain)
    return _plain(node, context)


def object_argument(node: Node, context: Context, param: Param) -> Form:
    """Return an argument of an object collective: a name, an expression, or YAML data."""
    node, context = context.resolve(node)
    if isinstance(node, Scalar) and isinstance(node.value, str):
        return expression(node, context)
    if isinstance(node, Scalar) and node.value is None:
        return Constant(value=None, mark=node.mark)
    if _is_per_rank(node):
        assert isinstance(node, Mapping)
        return read_per_rank(node, context, lambda item, there: object_argument(item, there, param))
    return _plain(node, context)


def read_object(node: Node, context: Context) -> Form:
    """Return what a name of `objects:` must hold: plain YAML, or one expression for all of it.

    A string is a string in `objects:`. In an expectation it may be either: `names: "before(names,
    0)"` is an expression because it calls a function that there is, `names: ada` is a text.
    """
    if _is_text(node):
        assert isinstance(node, Scalar)
        found = _parse_known(node, context)
        if found is not None:
            return found
    return _plain(node, context)


def _is_text(node: Node) -> bool:
    return isinstance(node, Scalar) and isinstance(node.value, str)


def _parse_known(node: Scalar, context: Context) -> Form | None:
    """Return a text as an expression where it is one over known names; otherwise it is text."""
    try:
        compiled = compile_expression(
            node.text, node.mark, groups=context.names.groups, limits=context.limits
        )
    except ScenarioError:
        return None
    known = compiled.names <= frozenset(context.readable) and (compiled.names or compiled.calls)
    return expression(node, context) if known else None


def _plain(node: Node, context: Context) -> Form:
    if _is_computed(node):
        return Objects(tree=_tree(node, context), mark=node.mark)
    if isinstance(node, Scalar) and node.value is None:
        return Constant(value=None, mark=node.mark)
    return Objects(tree=_tree(node, context), mark=node.mark)


def _is_computed(node: Node) -> bool:
    return isinstance(node, Mapping) and node.words() == [COMPUTED]


def _is_per_rank(node: Node) -> bool:
    """Whether a mapping is from ranks to values: it has `else`, or all its keys are integers."""
    if not isinstance(node, Mapping) or not node.entries:
        return False
    return ELSE in node.words() or all(_selects(key) for key, _ in node.entries)


def _selects(key: Node) -> bool:
    if isinstance(key, Sequence):
        return True
    return isinstance(key, Scalar) and isinstance(key.value, int) and key.value is not True


def _tree(node: Node, context: Context) -> Any:
    """Return plain data; its computed parts are expressions, to be evaluated on each rank."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [_tree(item, context) for item in node.items]
        case Mapping() if _is_computed(node):
            item = node.entries[0][1]
            if not isinstance(item, Scalar):
                return None
            computed = expression(item, context)
            return computed.value if isinstance(computed, Constant) else computed
        case Mapping():
            return {_key(key): _tree(value, context) for key, value in node.entries}


def _key(key: Node) -> Any:
    value = plain(key)
    return key_text(key) if isinstance(value, list | dict) else value
