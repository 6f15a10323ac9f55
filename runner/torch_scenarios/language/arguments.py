"""The arguments of an operation, read by the kinds that its parameters declare.

    class Send(...): params = (tensor("tensor"), rank("dst"), ...)       an operation declares
    send: {tensor: x, dst: "rank + 1"}                                   a file says
    {"tensor": Expression(x), "dst": Expression(rank + 1)}               what is returned here

No operation reads its own arguments: a new one has all messages, mappings by rank and inputs of
used files by declaring its parameters.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection
from collections.abc import Mapping as Mapping_
from collections.abc import Sequence as Sequence_
from typing import TypeAlias

from msgspec.structs import replace

from torch_scenarios.expressions.params import Param
from torch_scenarios.expressions.signatures import FUNCTION_NAMES
from torch_scenarios.expressions.values import Constant, Expression, Form, ListForm, PerRank, Record
from torch_scenarios.language import values
from torch_scenarios.language.context import Context, likely
from torch_scenarios.language.keys import BESIDE_MESSAGE, ELSE, HANDLE, PEERS, PREMUL_SUM
from torch_scenarios.language.names import INDEXED, is_text, police_new_name
from torch_scenarios.language.values import FAILED, expression, object_argument
from torch_scenarios.operations.base import Operation, PremulSum, Waiting
from torch_scenarios.operations.compute import HOST, SYNCHRONIZE, TIME, Compute
from torch_scenarios.operations.wait import OUTPUT
from torch_scenarios.source.repairs import respell
from torch_scenarios.source.tree import Mapping, Node, Scalar, Sequence, key_text, plain
from torch_scenarios.vocabulary import REDUCE_OPS

# -------------------------------------------------------------------------------------------------
# Arguments that are numbers, names, words or flags, by the kind that declares them.


def integer_argument(node: Node, context: Context, param: Param) -> Form:
    """Return a rank, a tag or the like."""
    return values.integer(node, context)


def integers_argument(node: Node, context: Context, param: Param) -> Form:
    """Return sizes or ranks."""
    return values.integers(node, context)


def seconds_argument(node: Node, context: Context, param: Param) -> Form:
    """Return a duration in seconds."""
    return values.seconds(node, context, what=f"`{param.name}`")


#: what YAML 1.1 took for a boolean -> the word of YAML 1.2
_BOOLEANS = {"no": "false", "off": "false", "yes": "true", "on": "true"}


def flag(node: Node, context: Context, param: Param) -> Form:
    """Return true, false, or what is one of them on each rank."""
    node, context = values.resolve_given(node, context, "flag")
    match node:
        case Mapping():
            return values.read_per_rank(node, context, lambda item, there: flag(item, there, param))
        case Scalar(text="no" | "off" | "yes" | "on" | "No" | "Off" | "Yes" | "On"):
            context.problems.add(
                "wrong_type",
                f"`{node.text}` is a text in YAML 1.2, not a boolean",
                node.mark,
                "write true or false",
                respell(node.mark, node.text, _BOOLEANS[node.text.lower()], sure=True),
            )
            return FAILED
        case Scalar(value=str()):
            return expression(node, context)
        case _:
            return Constant(value=plain(node), mark=node.mark)


def group(node: Node, context: Context, param: Param) -> Form:
    """Return a group's name; None is the world, as torch's `group=None` is."""
    node, context = values.resolve_given(node, context, "group")
    known = context.names.groups | {"world"}
    return values.read_fixed_form(node, context, known, code="unknown_group", what="group")


def reduce_op(node: Node, context: Context, param: Param) -> Form:
    """Return the name of a reduce op, or `{premul_sum: factor}`.

    `dist._make_nccl_premul_sum(factor)` scales each addend before it is summed; only NCCL has it.
    """
    node, context = values.resolve_given(node, context, "reduce_op")
    if isinstance(node, Scalar) and node.value == PREMUL_SUM:
        message = f"`{PREMUL_SUM}` is stated without its factor"
        context.problems.add("unknown_op", message, node.mark, f"write `{{{PREMUL_SUM}: 0.5}}`")
        return FAILED
    if isinstance(node, Mapping):
        if node.words() == [PREMUL_SUM]:
            factor = values.constant_number(
                node.entries[0][1], context, what="the factor of premul_sum", extra=context.world
            )
            if factor is None:
                return FAILED
            return Constant(value=PremulSum(factor=factor), mark=node.mark)
        return values.read_per_rank(
            node, context, lambda item, there: reduce_op(item, there, param)
        )
    return values.read_fixed_form(node, context, REDUCE_OPS, code="unknown_op", what="reduce op")


def work(node: Node, context: Context, param: Param) -> Form:
    """Return what is waited for; what `remote` returned has a value and nothing to wait for."""
    found = handles(node, context, param)
    named = node.items if isinstance(node, Sequence) else [node]
    for each in named:
        name = each.text.partition("[")[0] if isinstance(each, Scalar) else None
        if name in context.names.references and name not in context.names.futures:
            message = f"`{name}` is what `remote` returned, and is not waited for"
            hint = f"fetch its value: `to_here: {{rref: {name}, output: fetched}}`"
            context.problems.add("unknown_handle", message, each.mark, hint)
    return found


def handles(node: Node, context: Context, param: Param) -> Form:
    """Return the name of a work handle, or a list of names; by rank, no other rank waits.

    `wait: {0: up}` without `else` is `wait: {0: up, else: []}`: a rank that is not named has
    nothing to wait for, which for any other argument would be None.
    """
    node, context = values.resolve_given(node, context, "handles")
    if isinstance(node, Mapping) and HANDLE in node.words():
        return _future(node, context, param)
    if isinstance(node, Mapping):
        found = values.read_per_rank(node, context, lambda item, there: handles(item, there, param))
        nothing = Constant(value=[], mark=node.mark)
        return found if found.otherwise is not None else replace(found, otherwise=nothing)
    named = node.items if isinstance(node, Sequence) else [node]
    items = [item for each in named if (item := _handle(each, context)) is not None]
    if any(isinstance(item, ListForm) for item in items):
        return ListForm(items=tuple(items), mark=node.mark)
    kept = [item.value for item in items if isinstance(item, Constant)]
    return Constant(value=kept if isinstance(node, Sequence) else (kept or [""])[0], mark=node.mark)


def _future(node: Mapping, context: Context, param: Param) -> Form:
    """Return the handle of `{handle: f, output: x}`: only the work of `rpc_async` has an output."""
    named = node.get(HANDLE)
    assert named is not None
    name = named.text.partition("[")[0] if isinstance(named, Scalar) else None
    if name in context.names.handles and name not in context.names.futures:
        context.problems.add(
            "unknown_handle",
            f"`{name}` is not the work of `rpc_async`, and has no output",
            named.mark,
            f"wait for it alone: `wait: {name}`",
        )
        return FAILED
    return handles(named, context, param)


def output_of_wait(operation: Operation, value: Node, context: Context) -> Form | None:
    """Return the name that keeps the value, of `wait: {handle: f, output: x}`; or None."""
    if not isinstance(operation, Waiting) or not isinstance(value, Mapping):
        return None
    named = next((each for each in operation.params if each.kind == "handles"), None)
    if named is None or HANDLE not in value.words():
        return None
    output = value.get(OUTPUT)
    return None if output is None else new_name(output, context, replace(named, name=OUTPUT))


def reference(node: Node, context: Context, param: Param) -> Form:
    """Return the handle of what `remote` started: torch's RRef, which `to_here` fetches."""
    found = handles(node, context, param)
    name = node.text.partition("[")[0] if isinstance(node, Scalar) else None
    if name in context.names.handles and name not in context.names.references:
        message = f"`{name}` is not what `remote` returned"
        hint = "name that with `as` next to the `remote` step"
        context.problems.add("unknown_handle", message, node.mark, hint)
    return found


def function(node: Node, context: Context, param: Param) -> Form:
    """Return the name of a function that a rank may ask of another."""
    known = context.names.functions
    return values.read_fixed_form(node, context, known, code="unknown_name", what="function")


def _handle(node: Node, context: Context) -> Form | None:
    """Return the name of a handle; with an index, a list of the name and the index.

    `up[t]` is one handle for each value of `t`, as a script keeps them in a dictionary.
    """
    node, context = values.resolve_given(node, context, "handle")
    handles = context.names.handles
    text = node.value if isinstance(node, Scalar) else None
    indexed = INDEXED.fullmatch(text) if isinstance(text, str) else None
    if indexed is not None:
        name = _handle(Scalar(mark=node.mark, value=indexed["name"], text=indexed["name"]), context)
        index = Scalar(mark=node.mark, value=indexed["index"], text=indexed["index"])
        if not isinstance(name, Constant):
            return None
        if context.inlined is None and name.value not in context.names.indexed:
            context.problems.add(
                "unknown_handle",
                f"`{name.value}` is one work handle, and has no index",
                node.mark,
                f"wait for `{name.value}`, or give each work its own handle: `as: {text}`",
            )
            return None
        return ListForm(items=(name, expression(index, context)), mark=node.mark)
    if (
        isinstance(text, str)
        and text not in handles
        and context.final(text) in context.names.value_names
    ):
        context.problems.add(
            "unknown_handle",
            f"`{text}` is a tensor, not a work handle",
            node.mark,
            "name the handle with `as` next to the asynchronous step, and wait for that name",
        )
        return None
    found = values.read_fixed(node, context, handles, code="unknown_handle", what="work handle")
    return None if found is None else Constant(value=found, mark=node.mark)


def new_name(node: Node, context: Context, param: Param) -> Form:
    """Return a name that the operation makes."""
    node, context = values.resolve_given(node, context, "new_name")
    if not isinstance(node, Scalar) or node.value is None:
        return FAILED
    police_new_name(node, context, what=f"`{param.name}`")
    return Constant(value=context.final(node.value), mark=node.mark)


def word(node: Node, context: Context, param: Param) -> Form:
    """Return one of the words that the parameter declares, or `{word: text}`."""
    node, context = context.resolve(node)
    what = f"`{param.name}`"
    if not isinstance(node, Mapping):
        return values.read_fixed_form(node, context, param.words, code="unknown_word", what=what)
    if set(node.words()).isdisjoint(param.words):
        return values.read_per_rank(node, context, lambda item, there: word(item, there, param))
    said, given = node.entries[0]
    return Record(fields={key_text(said): text(given, context, param)}, mark=node.mark)


def text(node: Node, context: Context, param: Param) -> Form:
    """Return free text."""
    node, _ = values.resolve_given(node, context, "text")
    assert isinstance(node, Scalar)
    return Constant(value=None if node.value is None else node.text, mark=node.mark)


# -------------------------------------------------------------------------------------------------
# The arguments of an operation, read by the kinds that its parameters declare.

Reader: TypeAlias = "Callable[[Node, Context, Param], Form]"


def argument(node: Node, context: Context, param: Param) -> Form:
    """Return the form of one argument; refused is a written one that would keep nothing."""
    form = READERS[param.kind](node, context, param)
    if param.writes:
        _police_output(form, node, context, param)
    return form


# ---------------------------------------------------------------------- tensors


def _tensor(node: Node, context: Context, param: Param) -> Form:
    """Return a tensor's value.

    A number that `let` names is not a tensor: torch takes no float for one.
    """
    form = values.value(node, context)
    named = form.roots & context.let_names if isinstance(form, Expression) else frozenset()
    if named:
        name = min(named)
        message = f"`{name}` is a number that `let` names, where a tensor is wanted"
        hint = f'make a tensor of it first: `compute: {{t: "full(1, {name})"}}`'
        context.problems.add("wrong_type", message, node.mark, hint)
    return form


def _tensors(node: Node, context: Context, param: Param) -> Form:
    node, context = values.resolve_given(node, context, "tensors")
    if isinstance(node, Sequence):
        return _list_of(node, context, lambda item, there: _tensor(item, there, param))
    return _read_name_or_per_rank(node, context, param, _tensors)


def _tensor_lists(node: Node, context: Context, param: Param) -> Form:
    node, context = values.resolve_given(node, context, "tensor_lists")
    if isinstance(node, Sequence):
        return _list_of(node, context, lambda item, there: _tensors(item, there, param))
    return _read_name_or_per_rank(node, context, param, _tensor_lists)


def _list_of(node: Sequence, context: Context, build: Callable[[Node, Context], Form]) -> Form:
    """Return a list of what is built of each item: data where all are."""
    items = tuple(build(item, context) for item in node.items)
    if items and all(isinstance(item, Constant) for item in items):
        values = [item.value for item in items if isinstance(item, Constant)]
        return Constant(value=values, mark=node.mark)
    return ListForm(items=items, mark=node.mark)


def _read_name_or_per_rank(node: Node, context: Context, param: Param, again: Reader) -> Form:
    match node:
        case Mapping():
            return values.read_per_rank(
                node, context, lambda item, there: again(item, there, param)
            )
        case Scalar(value=str()):
            return expression(node, context)
        case _:
            return Constant(value=None, mark=node.mark)


def _police_output(form: Form, node: Node, context: Context, param: Param) -> None:
    """Refuse an output that could keep nothing: data, or an expression that makes a new tensor.

    `all_reduce: {tensor: "x + 1"}` would reduce a temporary that nothing can look at afterwards.
    Torch allows it; in a scenario it is a mistake.
    """
    if _keeps(form):
        return
    wanted = "the name of a tensor or a view of one"
    hint = "define it under `tensors:`, then name it here: `x`, `x[0:2]`"
    if param.kind == "objects":
        wanted = "the name of a list under `objects:`"
        hint = "define it there, `items: [1, two]`, then name it here"
    elif isinstance(form, Expression) and re.search(r"\w\[", form.text):
        hint = "a list or a mask in brackets makes a copy; a slice, `x[0:2]`, is a view"
    message = f"`{param.name}` is written to, so it must be {wanted}"
    context.problems.add("output_not_a_name", message, node.mark, hint)


def _keeps(form: Form) -> bool:
    """Whether what is written to is still there afterwards: a name, or a view of one."""
    match form:
        case Expression():
            return bool(form.roots)
        case ListForm():
            return all(_keeps(item) for item in form.items)
        case PerRank():
            branches = [item for _, item in form.branches]
            if form.otherwise is not None:
                branches.append(form.otherwise)
            return any(_keeps(item) for item in branches)
        case Constant():
            return form.value is None
        case _:
            return False


# ---------------------------------------------------------------------- lists of operations


def _p2p_ops(node: Node, context: Context, param: Param) -> Form:
    """Return the messages of a batch, in order; by rank, each rank has a list of its own."""
    node, context = context.resolve(node)
    if isinstance(node, Mapping):
        return values.read_per_rank(node, context, lambda item, there: _p2p_ops(item, there, param))
    assert isinstance(node, Sequence)
    items = tuple(_p2p_op(item, context, param) for item in node.items)
    return ListForm(items=items, mark=node.mark)


def _p2p_op(node: Node, context: Context, param: Param) -> Form:
    """Return one message; `{isend: {tensor: x, dst: 1}}` is short for its P2POp.

    `torch.distributed.P2POp(op, tensor, peer, group, tag)` has one `peer` for both directions;
    `isend` calls it `dst` and `irecv` calls it `src`.
    """
    assert isinstance(node, Mapping)
    fields: dict[str, Form] = {}
    variables, selected = node.get("for"), node.get("ranks")
    others = [each for each in node.entries if key_text(each[0]) not in BESIDE_MESSAGE]
    node = Mapping(mark=node.mark, entries=others)
    context, loops = _item_loops(variables, context)
    ranks = None if selected is None else values.selector(selected, context)
    inner, role = node, None
    if len(node.entries) == 1 and node.words()[0] in PEERS:
        key, value = node.entries[0]
        role = PEERS[key_text(key)]
        fields["op"] = Constant(value=key_text(key), mark=key.mark)
        inner = value if isinstance(value, Mapping) else Mapping(value.mark, [])
    fields |= read_arguments(
        inner,
        context,
        tuple(field for field in param.fields if field.name not in fields),
        of="a message" if role is None else node.words()[0],
        renamed={} if role is None else {role: "peer", f"group_{role}": "group_peer"},
    )
    return Record(fields=fields, ranks=ranks, loops=loops, mark=node.mark)


def _item_loops(
    node: Node | None, context: Context
) -> tuple[Context, tuple[tuple[str, Form], ...]]:
    """Return the variables of an item's `for`, outermost first, and where they are known."""
    found: list[tuple[str, Form]] = []
    for key, over in node.entries if isinstance(node, Mapping) else ():
        written = key_text(key)
        is_text(key, context.problems, of="a variable")
        if written in context.loops:
            message = f"an outer `for` already uses `{written}`"
            context.problems.add("duplicate_name", message, key.mark)
        final = context.variable(written)
        found.append((final, values.integers(over, context)))
        context = context.within(written, final, set())
    return context, tuple(found)


def read_arguments(
    node: Mapping,
    context: Context,
    params: Sequence_[Param],
    *,
    of: str,
    renamed: Mapping_[str, str] | None = None,
) -> dict[str, Form]:
    """Return the arguments in a mapping by their declared names; every problem is noted.

    `of` names what takes them; `renamed` maps further spellings to declared names.
    """
    spelt = {name: param for param in params for name in (param.name, *param.aliases)}
    spelt |= {word: spelt[name] for word, name in (renamed or {}).items()}
    found: dict[str, Form] = {}
    for key, value in node.entries:
        name = key_text(key)
        param = spelt.get(name)
        if param is None:
            context.problems.unknown(
                "unknown_argument",
                f"unknown argument `{name}` of {of}",
                name,
                tuple(spelt),
                key.mark,
                listed="its arguments are",
                sort="argument",
            )
        elif param.name in found:
            message = f"`{name}` and `{param.name}` are the same argument of {of}"
            context.problems.add("duplicate_argument", message, key.mark)
        else:
            found[param.name] = argument(value, context, param)
    return found


def _assignments(node: Node, context: Context, param: Param) -> Form:
    """Return what `compute` assigns, in order: to a name, or into a part of a tensor, `x[2:4]`."""
    assert isinstance(node, Mapping)
    fields: dict[str, Form] = {}
    for key, item in node.entries:
        if not is_text(key, context.problems, of="a tensor"):
            continue
        if "[" in key.text:
            fields[_unique(key.text, fields)] = values.value(item, context)
            continue
        police_new_name(key, context, what="the name")
        target, there = context.resolve(key)
        name = there.final(target.text if isinstance(target, Scalar) else key.text)
        _police_target(name, key, context)
        fields[name] = values.value(item, context)
    return Record(fields=fields, mark=node.mark)


def _unique(text: str, taken: Collection[str]) -> str:
    """Return a key for a part of a tensor: its text, told apart from others alike."""
    while text in taken:
        text += " "
    return text


def read_parts(operation: Operation, value: Node, context: Context) -> Record | None:
    """Return the parts of tensors that a `compute` stores into, by the keys of its assignments.

    A key of an assignment is a text, which `x[2:4]` is as well. So that no rank parses it again at
    each turn of a loop, its expression is an argument of its own.
    """
    param = next((each for each in operation.params if each.kind == "assignments"), None)
    if param is None:
        return None
    named = isinstance(value, Mapping) and _names_it(param, value, context)
    node = value.entries[0][1] if isinstance(value, Mapping) and named else value
    found = parts_in([key for key, _ in node.entries] if isinstance(node, Mapping) else [], context)
    return Record(fields=dict(found), mark=node.mark) if found else None


def parts_in(keys: Sequence_[Node], context: Context) -> dict[str, Expression]:
    """Return the parts of tensors among keys of assignments; every problem is noted."""
    found: dict[str, Expression] = {}
    for key in keys:
        if isinstance(key, Scalar) and isinstance(key.value, str) and "[" in key.value:
            target = expression(key, context)
            unknown = isinstance(target, Expression) and target.roots - {*context.names.readable}
            if unknown and context.inlined is None:
                continue  # told already
            if isinstance(target, Expression) and _is_a_part(target, key, context):
                found[_unique(key.value, found)] = target
    return found


def _is_a_part(target: Expression, key: Scalar, context: Context) -> bool:
    """Whether an expression is a part of one tensor, by integers and slices; else notes it."""
    node = ast.parse(target.text.strip(), mode="eval").body
    subscript = isinstance(node, ast.Subscript)
    while isinstance(node, ast.Subscript):
        node = node.value
    names = context.names
    held = len(target.roots) == 1 and (
        target.roots <= names.value_names or any(context.is_opaque(name) for name in target.roots)
    )
    if subscript and held and isinstance(node, ast.Name | ast.Attribute):
        return True
    context.problems.add(
        "output_not_a_name",
        f"`{key.value}` is not a part of a tensor, so nothing keeps what is stored",
        key.mark,
        "a part by integers and slices is stored into: `x[2:4]`; a list or a mask copies",
    )
    return False


def _numbers(node: Node, context: Context, param: Param) -> Form:
    """Return what `let` names: each is known to the next."""
    assert isinstance(node, Mapping)
    fields: dict[str, Form] = {}
    for key, item in node.entries:
        if not is_text(key, context.problems, of="a variable"):
            continue
        form = values.numbers(item, context)
        if not _police_number(key, context):
            fields[context.let(key.text)] = form
    return Record(fields=fields, mark=node.mark)


def _police_number(key: Scalar, context: Context) -> bool:
    """Note a name that means something else already; returns whether it does.

    A `let` is assigned anew in each turn of a loop, so that it cannot share a name with what is
    defined once for the whole file.
    """
    name, names, here = key.text, context.names, context.inlined
    known: dict[str, Collection[str]] = {
        "a function": FUNCTION_NAMES,
        "a variable of a `for`": names.variables if here is None else here.variables,
    }
    if here is None:
        known |= {
            "a tensor": names.tensors | names.computed,
            "an object": names.objects,
            "a group": names.groups | {each.partition(".")[0] for each in names.groups},
            "a parameter": names.constants,
            "a work handle": names.handles,
        }
    else:
        known |= {
            "an input": {*here.bindings, *here.opaque},
            "something else in this file": here.renamed,
        }
    sort = next((sort for sort, taken in known.items() if name in taken), None)
    if sort is not None:
        fix = f"choose another name for the number, such as `my_{name}`"
        if sort == "a tensor":
            fix += f"; `compute: {{{name}: ...}}` gives the tensor a new value"
        context.problems.add(
            "name_taken",
            f"`{name}` is {sort}, and cannot also be a number that `let` assigns",
            key.mark,
            fix,
        )
    return sort is not None


def _police_target(name: str, key: Scalar, context: Context) -> None:
    if context.inlined is None or context.is_opaque(name):
        return  # what a file defines twice is reported once, for the whole file
    names = context.names
    taken = {"a parameter": names.constants, "a group": names.groups}
    sort = next((sort for sort, known in taken.items() if name in known), None)
    if sort:
        context.problems.add(
            "duplicate_name", f"`{name}` is {sort}; nothing can be assigned to it", key.mark
        )


# ---------------------------------------------------------------------- tensors on a mesh


def _read_held(node: Node, context: Context, param: Param) -> Form:
    """Return the name of a tensor: it is bound anew, so that no view of one will do."""
    known = context.names.value_names
    return values.read_fixed_form(node, context, known, code="unknown_name", what=param.name)


def _mesh(node: Node, context: Context, param: Param) -> Form:
    """Return the name of a device mesh, or of one dimension of it."""
    dims = {name for name in context.names.groups if "." in name}
    known = dims | {name.partition(".")[0] for name in dims}
    return values.read_fixed_form(node, context, known, code="unknown_group", what="device mesh")


def _placements(node: Node, context: Context, param: Param) -> Form:
    """Return placements: a list of them, or an expression that yields one."""
    return values.placements(node, context)


# ---------------------------------------------------------------------- models


def _model(node: Node, context: Context, param: Param) -> Form:
    """Return the model of a name."""
    known = context.names.models
    name = values.read_fixed(node, context, known, code="unknown_name", what=param.name)
    return FAILED if name is None else Constant(value=known[name], mark=node.mark)


def _checkpoint(node: Node, context: Context, param: Param) -> Form:
    """Return the name of a checkpoint: it is no path, since a file says nowhere what is written.

    A scenario may be a stranger's. Where a checkpoint lies is decided by the run.
    """
    node, context = context.resolve(node)
    if isinstance(node, Scalar) and isinstance(node.value, str) and node.value.isidentifier():
        return Constant(value=node.value, mark=node.mark)
    message = "a checkpoint has a name, and no path"
    hint = "write a name such as `first`: it lies in the run's own folder, which goes with the run"
    context.problems.add("bad_name", message, node.mark, hint)
    return FAILED


#: keys of a batch
_BATCH = ("group", "sizes", "dim")
_SAMPLER = "DistributedSampler"
_SAMPLER_KEYS = ("group", "num_replicas", "rank", "shuffle", "seed", "drop_last", "epoch")


def _batch(node: Node, context: Context, param: Param) -> Form:
    """Return who shares the rows of a batch, and how.

    batch: dp                                        even parts over the ranks of `dp`
    batch: {group: dp, sizes: [3, 1]}                rank by rank, along `dim` (0)
    batch: {DistributedSampler: {shuffle: false}}    every world_size-th row, as torch's sampler
    """
    node, context = context.resolve(node)
    if not isinstance(node, Mapping):
        named = group(node, context, param)
        return Record(fields={"group": named}, mark=node.mark)
    sampled = node.words() == [_SAMPLER]
    inner = node.entries[0][1] if sampled else node
    if not isinstance(inner, Mapping):
        return values.wrong_type(inner, context, f"`{_SAMPLER}`", "a mapping with `group`")
    known = _SAMPLER_KEYS if sampled else _BATCH
    fields: dict[str, Form] = {}
    for key, value in inner.entries:
        name = key_text(key)
        if name not in known:
            context.problems.unknown(
                "unknown_argument",
                f"unknown argument `{name}` of `batch`",
                name,
                known,
                key.mark,
                listed="its arguments are",
            )
        elif name == "group":
            fields[name] = group(value, context, param)
        elif name == "sizes":
            fields[name] = values.integers(value, context)
        elif name in {"shuffle", "drop_last"}:
            fields[name] = flag(value, context, replace(param, name=name))
        else:
            fields[name] = values.integer(value, context)
    fields.setdefault("group", Constant(value="world", mark=node.mark))
    if sampled:
        fields[_SAMPLER] = Constant(value=True, mark=node.mark)
    return Record(fields=fields, mark=node.mark)


def _labels(node: Node, context: Context, param: Param) -> Form:
    """Return labels of layers, the same for all or by rank."""
    node, context = context.resolve(node)
    if isinstance(node, Mapping):
        return values.read_per_rank(node, context, lambda item, there: _labels(item, there, param))
    items = node.items if isinstance(node, Sequence) else [node]
    if not all(isinstance(each, Scalar) and isinstance(each.value, str) for each in items):
        return values.wrong_type(node, context, f"`{param.name}`", "a list of labels")
    found = [each.text for each in items if isinstance(each, Scalar)]
    return Constant(value=found, mark=node.mark)


def _number(node: Node, context: Context, param: Param) -> Form:
    """Return a number that is the same on every rank."""
    found = values.constant_number(node, context, what=f"`{param.name}`", extra=context.world)
    return FAILED if found is None else Constant(value=found, mark=node.mark)


def _clip(node: Node, context: Context, param: Param) -> Form:
    """Return to which norm gradients are clipped: on each rank, where `rank` is read.

    `{max: 1.0, over: local}` is the norm of the rank's own part: with sharded parameters each rank
    then scales by another factor, a mistake that scenarios show.
    """
    stated, over = node, None
    if isinstance(node, Mapping):
        stated, over = node.get("max") or node, node.get("over")
    if isinstance(stated, Scalar) and stated.value is None:
        return Constant(value=None, mark=node.mark)
    world = context.world.get("world_size", 1)
    found = [
        values.constant_value(
            stated, context, what=f"`{param.name}`", extra={**context.world, "rank": rank}
        )
        for rank in range(world)
    ]
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in found):
        if all(each is not None for each in found):
            values.wrong_type(stated, context, f"`{param.name}`", "a number")
        return FAILED
    most = tuple(map(float, found))
    return Constant(value={"most": most, "local": over is not None}, mark=node.mark)


READERS: dict[str, Reader] = {
    "clip": _clip,
    "model": _model,
    "checkpoint": _checkpoint,
    "batch": _batch,
    "labels": _labels,
    "number": _number,
    "held": _read_held,
    "mesh": _mesh,
    "placements": _placements,
    "tensor": _tensor,
    "tensors": _tensors,
    "tensor_lists": _tensor_lists,
    "rank": integer_argument,
    "group_rank": integer_argument,
    "tag": integer_argument,
    "group": group,
    "reduce_op": reduce_op,
    "sizes": integers_argument,
    "ranks": integers_argument,
    "flag": flag,
    "seconds": seconds_argument,
    "objects": object_argument,
    "object": object_argument,
    "handles": work,
    "reference": reference,
    "function": function,
    "name": new_name,
    "word": word,
    "text": text,
    "p2p_ops": _p2p_ops,
    "assignments": _assignments,
    "numbers": _numbers,
}


# -------------------------------------------------------------------------------------------------
# What stands below an action: its arguments by name, or the one value that is all it takes.


def arguments_of(operation: Operation, key: Node, value: Node, context: Context) -> dict[str, Form]:
    """Return the arguments of an action, by their declared names; every problem is noted.

    An action has three forms: arguments by name, the one value that is all it takes (`wait: up`,
    `sleep: 0.5s`), and for `compute` the durations of kernels.
    """
    name = key_text(key)
    if operation.name == Compute.name and _states_time(value, context):
        assert isinstance(value, Mapping)
        stated = {
            key_text(key): _synchronizes(each, context)
            if key_text(key) == SYNCHRONIZE
            else values.seconds(each, context, what=f"`{key_text(key)}`")
            for key, each in value.entries
        }
        return {"assignments": Record(fields={}, mark=value.mark), **stated}
    whole = _find_whole_param(operation, value, context)
    if whole is not None:
        return {whole.name: argument(value, context, replace(whole, name=name))}
    if not isinstance(value, Mapping):
        return {}
    if value.entries:
        value = Mapping(key.mark, value.entries)
    return read_arguments(value, context, operation.params, of=name)


def _synchronizes(node: Node, context: Context) -> Form:
    """Return whether the host waits for the kernels that a `compute` states."""
    found = flag(node, context, Param(name=SYNCHRONIZE, kind="flag", description=""))
    if isinstance(found, Constant) and not isinstance(found.value, bool):
        message = f"`{SYNCHRONIZE}` says whether the host waits for these kernels"
        context.problems.add("wrong_type", message, node.mark, "write true or false")
        return FAILED
    return found


def _states_time(value: Node, context: Context) -> bool:
    """Whether a `compute` states what kernels and a host take: durations, or some by rank.

    `compute: {time: 3ms}` is a duration, `compute: {time: "x + 1"}` assigns to a tensor of that
    name.
    """
    if not isinstance(value, Mapping) or not value.entries:
        return False
    words = value.words()
    if not {TIME, HOST, SYNCHRONIZE}.issuperset(words) or len(words) != len(value.entries):
        return False
    given: list[Node] = []
    for key, stated in value.entries:
        if key_text(key) != SYNCHRONIZE:
            given += [one for _, one in stated.entries] if isinstance(stated, Mapping) else [stated]
    durations = (isinstance(each, Scalar) and values.is_duration(each, context) for each in given)
    return bool(given) and all(durations)


def _find_whole_param(operation: Operation, value: Node, context: Context) -> Param | None:
    """Return the parameter that the action's whole value is for; None for a mapping by name."""
    if operation.bare is not None:
        param = next(param for param in operation.params if param.name == operation.bare)
        return None if _names_it(param, value, context) else param
    listed = next((each for each in operation.params if each.kind == "p2p_ops"), None)
    if isinstance(value, Sequence) or (isinstance(value, Mapping) and _has_ranks(value)):
        return listed
    return None


def _names_it(param: Param, value: Node, context: Context) -> bool:
    """Whether a value is a mapping that names the parameter, perhaps misspelt.

    `wait: {handles: [a, b]}` does, `wait: {0: a}` is the value itself, by rank.
    """
    if not isinstance(value, Mapping) or (param.kind == "handles" and HANDLE in value.words()):
        return False
    spelt = (param.name, *param.aliases)
    if param.kind in {"assignments", "numbers"}:  # any name may be assigned to, also this one
        alone = len(value.entries) == 1 and value.words()[0] in spelt
        return alone and isinstance(value.entries[0][1], Mapping)
    strangers = (key for key in value.words() if key in spelt or key not in context.readable)
    return any(likely(key, spelt, "argument") for key in strangers)


def _has_ranks(node: Mapping) -> bool:
    """Whether some key of a mapping can be no argument's name: a rank, a list of ranks, `else`."""
    return any(
        not isinstance(key, Scalar) or not isinstance(key.value, str) or key.value == ELSE
        for key, _ in node.entries
    )
