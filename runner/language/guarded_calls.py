"""Calls of the functions of the language."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from runner.language.guarded import HERE, NOTHING, Guarded, call_node, constant_node, dotted_name
from runner.language.guarded_names import refuse_attribute
from runner.language.refusals import PYTHON_FUNCTION_HINTS
from runner.language.signatures import FUNCTION_NAMES, SIGNATURES, Signature
from runner.plan import WORLD
from runner.problems import near, nearest

if TYPE_CHECKING:
    from runner.language.guarding import Guarding

_NUMBER_CALLS = frozenset({"len", "numel", "int", "float", "bool", "group_rank", "group_size"})
_GROUP_CALLS = frozenset({"group_rank", "group_size", "group_ranks"})
_VIEWS = frozenset({"reshape", "permute_dims"})
_MEASURES = frozenset({"shape", "numel", "len"})


def call(guarding: Guarding, node: ast.Call) -> Guarded:
    """Allow a call of a function of the language, with as many arguments as it takes."""
    function = node.func
    if isinstance(function, ast.Attribute):
        return refuse_attribute(guarding, function, dotted_name(function))
    if not isinstance(function, ast.Name):
        message = "only a function of the language can be called"
        return guarding.refuse(function, "expression_not_allowed", message)
    name = function.id
    if name not in SIGNATURES:
        return _refuse_function(guarding, function)
    if not _arguments_fit(guarding, node, name):
        return Guarded(constant_node(None))
    guarding.calls.add(name)
    if name in _GROUP_CALLS:
        made = call_node(f"{name}()", _group(guarding, node))
        return Guarded(made, is_number=name in _NUMBER_CALLS)
    return _before(guarding, node) if name == "before" else _ordinary_call(guarding, node, name)


def _ordinary_call(guarding: Guarding, node: ast.Call, name: str) -> Guarded:
    read = set(guarding.reads)
    arguments = guarding.visit_all(node.args)
    if name in _MEASURES and all(_is_part(argument) for argument in node.args):
        guarding.reads = read
    made = guarding.guarded_call(f"{name}()", *(argument.node for argument in arguments))
    made.keywords = [
        ast.keyword(arg=keyword.arg, value=guarding.visit(keyword.value).node, **HERE)
        for keyword in node.keywords
    ]
    roots = arguments[0].roots if name in _VIEWS and arguments else NOTHING
    return Guarded(made, name in _NUMBER_CALLS, roots)


def _is_part(node: ast.expr) -> bool:
    """Whether an argument is a name, or a part of what it holds that no other name chooses."""
    while isinstance(node, ast.Subscript):
        names = {each.id for each in ast.walk(node.slice) if isinstance(each, ast.Name)}
        if not names <= {"rank", "world_size"}:
            return False
        node = node.value
    return isinstance(node, ast.Name)


def _refuse_function(guarding: Guarding, node: ast.Name) -> Guarded:
    name = node.id
    hint = PYTHON_FUNCTION_HINTS.get(name)
    if hint is None:
        close = near(name, FUNCTION_NAMES)
        shown = " or ".join(f"`{each}`" for each in close)
        hint = f"did you mean {shown}?" if close else None
    return guarding.refuse(node, "unknown_function", f"there is no function `{name}`", hint)


def _arguments_fit(guarding: Guarding, node: ast.Call, name: str) -> bool:
    signature = SIGNATURES[name]
    plain = not node.keywords and len(node.args) == len(signature.required)
    if plain and not any(isinstance(argument, ast.Starred) for argument in node.args):
        return True
    return _police_arguments(guarding, node, name, signature)


def _police_arguments(guarding: Guarding, node: ast.Call, name: str, signature: Signature) -> bool:
    """Refuse what does not fit the signature; return whether all does."""
    said = len(guarding.refusals)
    given = [keyword.arg for keyword in node.keywords]
    unpacked: list[ast.expr | ast.keyword] = [
        *(each for each in node.args if isinstance(each, ast.Starred)),
        *(each for each in node.keywords if each.arg is None),
    ]
    for argument in unpacked:
        message = "arguments are written out, not unpacked with `*`"
        guarding.refuse(argument, "expression_not_allowed", message)
    for keyword in node.keywords:
        if keyword.arg is not None and keyword.arg not in signature.keywords:
            close = nearest(keyword.arg, signature.keywords)
            message = f"`{name}` has no argument `{keyword.arg}`"
            hint = f"did you mean `{close}`? {signature.usage}" if close else signature.usage
            guarding.refuse(keyword, "wrong_arguments", message, hint)
    if len(guarding.refusals) > said:
        return False
    missing = [each for each in signature.required[len(node.args) :] if each not in given]
    twice = [each for each in signature.positional[: len(node.args)] if each in given]
    wrong = None
    if missing:
        wrong = f"`{name}` needs `{missing[0]}`"
    elif twice:
        wrong = f"`{name}` gets `{twice[0]}` twice"
    elif signature.most is not None and len(node.args) > signature.most:
        wrong = f"`{name}` takes at most {signature.most} arguments, not {len(node.args)}"
    if wrong is not None:
        guarding.refuse(node, "wrong_arguments", wrong, signature.usage)
    return wrong is None


def _group(guarding: Guarding, node: ast.Call) -> ast.expr:
    """Return a group's name as a constant; a parameter may hold one, too."""
    group = node.args[0] if node.args else node.keywords[0].value
    dotted = dotted_name(group)
    if dotted is not None and (dotted in guarding.groups or dotted == WORLD):
        guarding.nodes += 1
        return constant_node(dotted)
    if isinstance(group, ast.Name):
        return guarding.visit(group).node
    if isinstance(group, ast.Attribute):
        return refuse_attribute(guarding, group, dotted).node
    message = "this takes the name of a group"
    hint = "`world` is every rank"
    if isinstance(group, ast.Constant) and isinstance(group.value, str):
        hint = f"a name stands without quotes: {group.value}"
    return guarding.refuse(group, "wrong_arguments", message, hint).node


def _before(guarding: Guarding, node: ast.Call) -> Guarded:
    given = {keyword.arg: keyword.value for keyword in node.keywords}
    tensor = node.args[0] if node.args else given["x"]
    rank = node.args[1] if len(node.args) > 1 else given["rank"]
    if not isinstance(tensor, ast.Name) or tensor.id in guarding.bound:
        message = "`before` takes the name of a tensor"
        hint = "index what it returns: before(x, r)[0]"
        return guarding.refuse(tensor, "wrong_arguments", message, hint)
    guarding.nodes += 1
    guarding.before.add(tensor.id)
    return Guarded(call_node("before()", constant_node(tensor.id), guarding.visit(rank).node))
