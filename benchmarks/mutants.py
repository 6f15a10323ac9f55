"""Backends that are right but for one fault, and which of them the corpus finds.

`python -m benchmarks.mutants` runs each on the cases of some files until one fails, and writes
docs/reference/mutants.md. As a plugin (`--plugin benchmarks.mutants --backend mutant_NAME`) it
registers each mutant on its own.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from plugins.passing_backend import Passing, register
from torch_scenarios.conformance.certificate import FIRST
from torch_scenarios.execution import Launcher, LaunchOptions
from torch_scenarios.language import load
from torch_scenarios.pipeline.attempts import analyse, execute

PREFIX = "mutant_"
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "mutants.md"
#: the folders that are gone through after the first twenty files
FOLDERS = ("collectives", "rooted", "barrier", "p2p", "groups", "async", "dtypes", "objects")
#: and these, in which a backend must raise, or be left in a hang
LATE_FOLDERS = ("faults",)

Method = Callable[..., Any]
SUM, PRODUCT, MIN, MAX = (
    dist.ReduceOp.SUM,
    dist.ReduceOp.PRODUCT,
    dist.ReduceOp.MIN,
    dist.ReduceOp.MAX,
)


def finish(result: Any) -> Any:
    """Return a work that is done."""
    done: torch.futures.Future[Any] = torch.futures.Future()
    done.set_result(result)
    bindings: Any = torch._C  # noqa: SLF001 -- torch has no other way to make one
    return bindings._distributed_c10d._create_work_from_future(done)  # noqa: SLF001


def after(name: str, change: Callable[..., None]) -> Method:
    """Return a method that does what is right, and then changes what came."""

    def call(self: Passing, *arguments: Any) -> Any:
        getattr(self.gloo, name)(*arguments).wait()
        change(self, *arguments)
        return finish(arguments[0])

    return call


def before(name: str, change: Callable[..., tuple[Any, ...]]) -> Method:
    """Return a method that changes its arguments first."""

    def call(self: Passing, *arguments: Any) -> Any:
        return getattr(self.gloo, name)(*change(self, *arguments))

    return call


def rooted(name: str, root: Callable[[Passing, int], int]) -> Method:
    """Return a rooted collective that takes another root than the one asked for."""

    def call(self: Passing, *arguments: Any) -> Any:
        options = arguments[-1]
        options.rootRank = root(self, options.rootRank)
        return getattr(self.gloo, name)(*arguments)

    return call


def with_op(name: str, other: Mapping[Any, Any]) -> Method:
    """Return a reduction that takes another op for some."""

    def call(self: Passing, *arguments: Any) -> Any:
        options = arguments[-1]
        for op, instead in other.items():
            if options.reduceOp == op:
                options.reduceOp = instead
                break
        return getattr(self.gloo, name)(*arguments)

    return call


def nothing(_: Passing, *__: Any, **___: Any) -> Any:
    """Do nothing, and say that it is done."""
    return finish([])


def keep(name: str, part: Callable[[Passing, torch.Tensor], Any]) -> Method:
    """Return a reduction after which a part of each tensor is what it was."""

    def call(self: Passing, tensors: Any, *options: Any) -> Any:
        old = [each.clone() for each in tensors]
        getattr(self.gloo, name)(tensors, *options).wait()
        for tensor, was in zip(tensors, old, strict=True):
            where = part(self, tensor)
            if where is not None and tensor.numel():
                tensor.view(-1)[where] = was.view(-1)[where]
        return finish(tensors)

    return call


def by_way_of(dtype: torch.dtype) -> Method:
    """Return an all_reduce that computes in another dtype."""

    def call(self: Passing, tensors: Any, *options: Any) -> Any:
        copies = [each.to(dtype) for each in tensors]
        self.gloo.allreduce(copies, *options).wait()
        for tensor, copy in zip(tensors, copies, strict=True):
            tensor.copy_(copy.to(tensor.dtype))
        return finish(tensors)

    return call


class Late(dist.Work):
    """A work that begins when it is waited for."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        """Keep what to begin."""
        super().__init__()
        self._begin: Callable[[], Any] | None = begin

    def wait(self, *_: Any) -> bool:
        """Begin, and wait."""
        begin, self._begin = self._begin, None
        if begin is not None:
            begin().wait()
        return True

    def is_completed(self) -> bool:
        """Whether it was waited for."""
        return self._begin is None


#: works that were never waited for are kept, so that Gloo goes on with them
_KEPT: list[Any] = []


def late(name: str) -> Method:
    """Return a call that begins when it is waited for: the order of the calls is lost."""

    def call(self: Passing, *arguments: Any) -> Any:
        work = Late(lambda: getattr(self.gloo, name)(*arguments))
        _KEPT.append(work)
        return work

    return call


def early(name: str) -> Method:
    """Return a call whose work is done before it is."""

    def call(self: Passing, *arguments: Any) -> Any:
        _KEPT.append(getattr(self.gloo, name)(*arguments))
        return finish(arguments[0])

    return call


def quiet(name: str) -> Method:
    """Return a call that raises nothing, whatever happens."""

    def call(self: Passing, *arguments: Any) -> Any:
        try:
            getattr(self.gloo, name)(*arguments).wait()
        except Exception:  # noqa: BLE001 -- that is the fault
            return finish(arguments[0])
        return finish(arguments[0])

    return call


def reverse_lists(self: Passing, outputs: Any, *_: Any) -> None:
    """Let a list of results stand in the opposite order."""
    del self
    for listed in outputs:
        copies = [each.clone() for each in listed]
        for tensor, copy in zip(listed, reversed(copies), strict=True):
            tensor.copy_(copy)


def leave_own(self: Passing, outputs: Any, *_: Any) -> None:
    """Let the rank's own part of a list be zero."""
    for listed in outputs:
        if listed:
            listed[self.rank()].zero_()


def zero_last(self: Passing, tensors: Any, *_: Any) -> None:
    """Let the last element be zero."""
    del self
    for tensor in tensors:
        if tensor.numel():
            tensor.view(-1)[-1:] = 0


def flip(self: Passing, output: torch.Tensor, *_: Any) -> None:
    """Let the parts of a result stand in the opposite order."""
    parts = output.view(-1).chunk(self.size())
    output.view(-1).copy_(torch.cat([each.clone() for each in reversed(parts)]))


def zero_tag(self: Passing, tensors: Any, peer: int, tag: int) -> tuple[Any, ...]:
    """Leave the tag out."""
    del self, tag
    return tensors, peer, 0


def last_byte_of_tag(self: Passing, tensors: Any, peer: int, tag: int) -> tuple[Any, ...]:
    """Give a message the last byte of its tag."""
    return (self, tensors, peer, tag % 256)


def compute_in(
    dtype: torch.dtype, op: Any, back: Callable[[Any], Any], other: Callable[[Any], Any]
) -> Method:
    """Return an all_reduce that computes one op of one dtype in another one, and goes back."""

    def call(self: Passing, tensors: Any, options: Any) -> Any:
        if options.reduceOp != op or tensors[0].dtype != dtype:
            return self.gloo.allreduce(tensors, options)
        copies = [other(each).clone() for each in tensors]
        self.gloo.allreduce(copies, options).wait()
        for tensor, copy in zip(tensors, copies, strict=True):
            tensor.copy_(back(copy))
        return finish(tensors)

    return call


def begin_at_zero(_: Passing, tensors: Any, options: Any) -> None:
    """Make a maximum zero where it is less."""
    if options.reduceOp == MAX and not tensors[0].is_complex():
        tensors[0].clamp_(min=0)


def own_part(self: Passing, outputs: Any, inputs: Any, options: Any) -> Any:
    """Give each rank what it has itself."""
    del self, options
    for output, given in zip(outputs, inputs, strict=True):
        if output.numel() == given.numel():
            output.copy_(given)
    return finish(outputs)


def first_only(self: Passing, tensors: Any, options: Any) -> Any:
    """Reduce the first of several tensors alone."""
    return self.gloo.allreduce_coalesced(list(tensors)[:1], options)


def from_the_lowest(self: Passing, tensors: Any, tag: int) -> Any:
    """Receive from the lowest other rank, whichever sends first."""
    return self.gloo.recv(tensors, 0 if self.rank() else 1, tag)


def saturate(self: Passing, tensors: Any, *options: Any) -> Any:
    """Let integers stop at their largest value."""
    (tensor,) = tensors
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        return self.gloo.allreduce(tensors, *options)
    wide = [tensor.to(torch.int64)]
    self.gloo.allreduce(wide, *options).wait()
    bounds = torch.iinfo(tensor.dtype)
    tensor.copy_(wide[0].clamp(bounds.min, bounds.max).to(tensor.dtype))
    return finish(tensors)


def first_element_only(self: Passing, tensors: Any, peer: int, tag: int) -> Any:
    """Receive into the first element alone."""
    (tensor,) = tensors
    whole = tensor.clone()
    self.gloo.recv([whole], peer, tag).wait()
    if tensor.numel():
        tensor.view(-1)[0] = whole.view(-1)[0]
    return finish(tensors)


def no_last_row(self: Passing, tensors: Any, peer: int, tag: int) -> Any:
    """Send a copy whose last element is zero."""
    (tensor,) = tensors
    copy = tensor.contiguous().clone()
    if copy.numel():
        copy.view(-1)[-1] = 0
    _KEPT.append(copy)
    return self.gloo.send([copy], peer, tag)


def whole_pieces_only(self: Passing, tensors: Any, peer: int, tag: int) -> Any:
    """Send a copy that is zero behind its last whole piece of 64 KiB, if it has such a piece."""
    (tensor,) = tensors
    copy = tensor.contiguous().clone()
    piece = PIECE // copy.element_size()
    if copy.numel() > piece:
        copy.view(-1)[copy.numel() // piece * piece :] = 0
    _KEPT.append(copy)
    return self.gloo.send([copy], peer, tag)


def exchange_late_places(self: Passing, output: torch.Tensor, *_: Any) -> None:
    """Exchange the last two parts of a result, of more than four ranks."""
    if self.size() > FEW:
        one, other = output.view(-1).chunk(self.size())[-2:]
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)


def cut_evenly(
    self: Passing, output: Any, given: Any, outputs: Any, inputs: Any, options: Any
) -> tuple[Any, ...]:
    """Leave out split sizes where the rows can be cut into equal pieces."""
    if len(output) % self.size() == len(given) % self.size() == 0:
        return output, given, [], [], options
    return output, given, outputs, inputs, options


LAST = slice(-1, None)
#: bytes of a piece, and the ranks that are few
PIECE, FEW = 1 << 16, 4
#: a name -> what is wrong with it, and the methods that are
MUTANTS: dict[str, tuple[str, dict[str, Method]]] = {
    "ignores_tags": (
        "messages match in order, whatever their tags",
        {"send": before("send", zero_tag), "recv": before("recv", zero_tag)},
    ),
    "tags_are_a_byte": (
        "tags that end in the same byte are the same",
        {"send": before("send", last_byte_of_tag), "recv": before("recv", last_byte_of_tag)},
    ),
    "any_source_is_the_lowest": (
        "a receive from anyone takes from the lowest other rank",
        {"recv_anysource": from_the_lowest},
    ),
    "send_loses_the_last": ("the last element of a message is zero", {"send": no_last_row}),
    "send_loses_its_tail": (
        "what is behind the last whole 64 KiB of a message is zero",
        {"send": whole_pieces_only},
    ),
    "recv_takes_the_first": ("one element of a message arrives", {"recv": first_element_only}),
    "send_is_early": ("the work of a send is done at once", {"send": early("send")}),
    "recv_is_early": ("the work of a receive is done at once", {"recv": early("recv")}),
    "recv_is_late": ("a receive begins when it is waited for", {"recv": late("recv")}),
    "send_is_late": ("a send begins when it is waited for", {"send": late("send")}),
    "recv_is_quiet": (
        "a receive waits inside of its call, and raises nothing",
        {"recv": quiet("recv")},
    ),
    "all_reduce_keeps_the_last": (
        "the last element is not reduced",
        {"allreduce": keep("allreduce", lambda _, __: LAST)},
    ),
    "all_reduce_keeps_the_first": (
        "the first element is not reduced",
        {"allreduce": keep("allreduce", lambda _, __: slice(0, 1))},
    ),
    "all_reduce_not_on_rank_0": (
        "rank 0 of the group keeps what it had",
        {"allreduce": keep("allreduce", lambda self, _: None if self.rank() else slice(None))},
    ),
    "all_reduce_not_on_the_last_rank": (
        "the last rank of the group keeps what it had",
        {
            "allreduce": keep(
                "allreduce",
                lambda self, _: slice(None) if self.rank() == self.size() - 1 else None,
            )
        },
    ),
    "all_reduce_of_matrices": (
        "tensors of two dimensions keep their last element",
        {"allreduce": keep("allreduce", lambda _, tensor: LAST if tensor.dim() > 1 else None)},
    ),
    "all_reduce_in_halves": ("it is computed in float16", {"allreduce": by_way_of(torch.float16)}),
    "all_reduce_in_floats": ("it is computed in float32", {"allreduce": by_way_of(torch.float32)}),
    "all_reduce_saturates": ("integers stop at their largest value", {"allreduce": saturate}),
    "all_reduce_is_early": ("its work is done at once", {"allreduce": early("allreduce")}),
    "all_reduce_is_late": ("it begins when it is waited for", {"allreduce": late("allreduce")}),
    "all_reduce_is_quiet": (
        "one that fails raises nothing",
        {"allreduce": quiet("allreduce")},
    ),
    "max_sums": ("MAX is SUM", {"allreduce": with_op("allreduce", {MAX: SUM})}),
    "min_is_max": ("MIN is MAX", {"allreduce": with_op("allreduce", {MIN: MAX})}),
    "product_sums": ("PRODUCT is SUM", {"allreduce": with_op("allreduce", {PRODUCT: SUM})}),
    "band_is_bor": (
        "BAND is BOR",
        {"allreduce": with_op("allreduce", {dist.ReduceOp.BAND: dist.ReduceOp.BOR})},
    ),
    "bxor_is_bor": (
        "BXOR is BOR",
        {"allreduce": with_op("allreduce", {dist.ReduceOp.BXOR: dist.ReduceOp.BOR})},
    ),
    "coalesced_reduces_the_first": (
        "of several tensors the first is reduced",
        {"allreduce_coalesced": first_only},
    ),
    "reduce_is_max": ("SUM is MAX in reduce", {"reduce": with_op("reduce", {SUM: MAX})}),
    "reduce_writes_everywhere": (
        "every rank gets the sum of a reduce",
        {
            "reduce": lambda self, tensors, options: self.gloo.allreduce(
                tensors, _all_reduce_options(options)
            )
        },
    ),
    "reduce_to_the_first": ("the root is rank 0", {"reduce": rooted("reduce", lambda *_: 0)}),
    "broadcast_from_the_first": (
        "the root is rank 0",
        {"broadcast": rooted("broadcast", lambda *_: 0)},
    ),
    "broadcast_from_the_next": (
        "the root is the rank after it",
        {"broadcast": rooted("broadcast", lambda self, root: (root + 1) % self.size())},
    ),
    "broadcast_loses_the_last": (
        "the last element is zero",
        {"broadcast": after("broadcast", zero_last)},
    ),
    "gather_to_the_first": ("the root is rank 0", {"gather": rooted("gather", lambda *_: 0)}),
    "gather_is_reversed": (
        "the parts come in the opposite order",
        {"gather": after("gather", reverse_lists)},
    ),
    "gather_without_the_root": (
        "the root's own part is zero",
        {"gather": after("gather", leave_own)},
    ),
    "scatter_from_the_first": ("the root is rank 0", {"scatter": rooted("scatter", lambda *_: 0)}),
    "scatter_loses_the_last": (
        "the last element is zero",
        {"scatter": after("scatter", zero_last)},
    ),
    "all_gather_is_reversed": (
        "the parts come in the opposite order",
        {"allgather": after("allgather", reverse_lists)},
    ),
    "all_gather_without_own": (
        "each rank's own part is zero",
        {"allgather": after("allgather", leave_own)},
    ),
    "all_gather_single_is_reversed": (
        "the parts come in the opposite order",
        {"_allgather_base": after("_allgather_base", flip)},
    ),
    "all_gather_single_exchanges_late_places": (
        "the last two parts are exchanged, of more than four ranks",
        {"_allgather_base": after("_allgather_base", exchange_late_places)},
    ),
    "reduce_scatter_is_max": (
        "SUM is MAX in reduce_scatter",
        {"reduce_scatter": with_op("reduce_scatter", {SUM: MAX})},
    ),
    "reduce_scatter_loses_the_last": (
        "the last element is zero",
        {"reduce_scatter": after("reduce_scatter", zero_last)},
    ),
    "reduce_scatter_single_is_max": (
        "SUM is MAX in reduce_scatter_single",
        {"_reduce_scatter_base": with_op("_reduce_scatter_base", {SUM: MAX})},
    ),
    "max_begins_at_zero": (
        "a maximum below zero is zero",
        {"allreduce": after("allreduce", begin_at_zero)},
    ),
    "max_of_uint8_has_a_sign": (
        "the highest bit of uint8 counts as a sign in MAX",
        {
            "allreduce": compute_in(
                torch.uint8, MAX, lambda it: it.view(torch.uint8), lambda it: it.view(torch.int8)
            )
        },
    ),
    "sum_of_flags_is_odd": (
        "SUM of booleans says whether an odd number is true",
        {
            "allreduce": compute_in(
                torch.bool, SUM, lambda it: it % 2 == 1, lambda it: it.to(torch.int32)
            )
        },
    ),
    "all_to_all_gives_own": ("each rank gets what it has itself", {"alltoall": own_part}),
    "all_to_all_single_is_reversed": (
        "the parts come in the opposite order",
        {"alltoall_base": after("alltoall_base", flip)},
    ),
    "all_to_all_single_cuts_evenly": (
        "split sizes are ignored where rows can be cut evenly",
        {"alltoall_base": before("alltoall_base", cut_evenly)},
    ),
    "barrier_does_nothing": ("a barrier waits for no rank", {"barrier": nothing}),
    "monitored_barrier_does_nothing": (
        "a monitored barrier waits for no rank",
        {"monitored_barrier": nothing},
    ),
}


def _all_reduce_options(options: Any) -> Any:
    made = dist.AllreduceOptions()
    made.reduceOp = options.reduceOp
    return made


def group_of(methods: Mapping[str, Method]) -> type[Passing]:
    """Return the groups of a mutant; what torch calls by two names is wrong under both."""
    return type("Mutant", (Passing,), dict(methods))


for _name, (_, _methods) in MUTANTS.items():
    if PREFIX + _name not in dist.Backend.backend_list:
        register(PREFIX + _name, group_of(_methods))


# -------------------------------------------------------------------------------------------------
# Which of them the corpus finds.


def files() -> list[Path]:
    """Return the files in the order in which they are tried."""
    folder = Path(__file__).parents[1] / "scenarios"
    first = [folder / f"{name}.yaml" for name in FIRST]
    rest = [
        path
        for each in (*FOLDERS, *LATE_FOLDERS)
        for path in sorted((folder / each).rglob("*.yaml"))
    ]
    return list(dict.fromkeys([*first, *rest]))


def baseline(cases: Iterable[Any]) -> list[Any]:
    """Return the cases that the backend passes of which all mutants are made."""
    with Launcher(LaunchOptions(backend="passing", plugins=("plugins.passing_backend",))) as it:
        return [each for each in cases if execute(each, it).verdict.status == "PASSED"]


def killer(name: str, cases: Iterable[Any]) -> tuple[str, str] | None:
    """Return the first case that a mutant fails, and with what; None where it survives."""
    options = LaunchOptions(
        backend=PREFIX + name, plugins=("benchmarks.mutants",), max_seconds=20.0
    )
    with Launcher(options) as launcher:
        for case in cases:
            verdict = execute(case, launcher).verdict
            if verdict.status == "FAILED":  # a machine under load may leave a case INCONCLUSIVE
                return case.scenario.file.partition("scenarios/")[2], verdict.findings[0].code
    return None


HEAD = """\
# Backends with one fault

Each of these backends is Gloo, passed on call by call, with one method that is wrong
(`benchmarks/mutants.py`). The table has the first case of the corpus that fails on it, in the order
of [the twenty files to run first](../how-to/backend.md#certify-it) and then of the folders
{folders}.

`python -m benchmarks.mutants` writes this page. torch {torch}; {count} cases pass without a fault;
{killed} of {mutants} mutants are found, {first} of them by the twenty files.

| backend | what is wrong | found by | as |
|---|---|---|---|
"""
#: why a mutant that no case finds is right
ALLOWED = {
    "monitored_barrier_does_nothing": "torch itself refuses the call of all but Gloo",
    "reduce_writes_everywhere": "torch leaves open what a reduce leaves off its root",
}


def main() -> None:
    """Write the page; the names on the command line alone are tried and printed."""
    cases = [
        analysis
        for path in files()
        for scenario in load(path)
        if (analysis := analyse(scenario)).verdict.status == "PASSED"
        and not scenario.backends
        and analysis.plan is not None
    ]
    cases = baseline(cases)
    print(f"{len(cases)} cases pass without a fault", flush=True)
    chosen = sys.argv[1:] or list(MUTANTS)
    rows, killed, first = [], 0, 0
    names = {f"{name}.yaml" for name in FIRST}
    for name in chosen:
        began_s = time.perf_counter()
        found = killer(name, cases)
        killed += found is not None
        first += found is not None and found[0] in names
        told = f"`{found[0]}` | `{found[1]}`" if found else f"survives: {ALLOWED.get(name, '?')} | "
        rows.append(f"| `{name}` | {MUTANTS[name][0]} | {told} |")
        print(f"{time.perf_counter() - began_s:6.1f} s  {rows[-1]}", flush=True)
    if not sys.argv[1:]:
        head = HEAD.format(
            folders=", ".join(f"`{each}`" for each in (*FOLDERS, *LATE_FOLDERS)),
            torch=torch.__version__,
            count=len(cases),
            killed=killed,
            mutants=len(MUTANTS),
            first=first,
        )
        PAGE.write_text(head + "\n".join([*rows, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
