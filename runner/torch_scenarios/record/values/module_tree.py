"""What a comparison of n processes with one shows, as a page: the modules of one process as a tree.

Modules that are right are green, the first wrong one is open, and each parameter and output has a
bar for each rank: which part of it the rank has.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct, field

from torch_scenarios.display import clean
from torch_scenarios.errors import Problem
from torch_scenarios.record.values.algorithm import find_sent_precision
from torch_scenarios.record.values.arrangement import (
    Arrangement,
    Layout,
    UnlikeError,
    Values,
    arrange,
    find_first_weights,
    read_tensors,
)
from torch_scenarios.record.values.deviation import (
    find_deviations,
    find_limit,
    measure_noise,
    name_arrangement,
    output_of,
)
from torch_scenarios.record.values.format.event import ModuleOutput
from torch_scenarios.record.values.format.record import ValueRecord, read_values
from torch_scenarios.record.values.parity import Parity

#: ranks whose bars are drawn, and segments of a bar
MOST_RANKS, MOST_SEGMENTS = 64, 64

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
  color: #1c1c1c; background: #fff; }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #161616; } }
code, pre { font-family: ui-monospace, monospace; }
details { margin-left: 1.2rem; border-left: 1px solid #8884; padding-left: .6rem; }
summary { cursor: pointer; }
.right > summary::before, .right::before { content: "✓ "; color: #1a7f37; }
.wrong > summary::before, .wrong::before { content: "✗ "; color: #cf222e; }
.later > summary::before, .later::before { content: "↳ "; color: #bf8700; }
.unknown > summary::before, .unknown::before { content: "· "; color: #888; }
.right > summary { color: #1a7f37; } .wrong > summary { color: #cf222e; font-weight: 600; }
.later > summary { color: #9a6700; }
.bars { display: grid; grid-template-columns: auto 1fr; gap: 1px .6rem;
  max-width: 30rem; margin: .2rem 0 .6rem 1.2rem; }
.bar { position: relative; height: .8rem; align-self: center; background: #8883; }
.bar i { position: absolute; top: 0; bottom: 0; background: #4c78a8; }
.of { color: #777; }
pre { white-space: pre-wrap; border-left: 3px solid #cf222e; padding-left: .8rem; }
""".strip()


class TreePart(Struct, frozen=True, kw_only=True):
    """A parameter or an output: its state, what is said of it, and each rank's segments of it.

    A segment is where it begins and ends, as parts of one.
    """

    name: str
    state: str
    words: str
    segments: dict[int, tuple[tuple[float, float], ...]]


class TreeModule(Struct, kw_only=True):
    """A module of one process: its kind, its state, what belongs to it, and the modules in it."""

    name: str
    kind: str = ""
    state: str = "unknown"
    parts: list[TreePart] = field(default_factory=list)
    children: list[TreeModule] = field(default_factory=list)


def build_tree(one: Path, many: Path, found: Parity, disturbed: Sequence[Path] = ()) -> TreeModule:
    """Return the modules of the reference with what each rank has of them."""
    alone, together = read_values(one), read_values(many)
    first = alone[min(alone)]
    reference = read_tensors(one, min(alone))
    held = {rank: read_tensors(many, rank) for rank in together}
    try:
        layout = arrange(reference, held)
    except UnlikeError:
        layout = {rank: {} for rank in together}
    noise = measure_noise(reference, [read_tensors(each, min(alone)) for each in disturbed])
    known = {rank: own for rank, own in layout.items() if own}
    sides, sent = (reference, held, layout), find_sent_precision(together)
    wrong = {
        layout[each.rank][each.name].name
        for each in (find_deviations(*sides, together, noise, sent) if known else ())
        if each.sure
    }
    culprit = found.judgement.findings[0].name if found.judgement.findings else None
    root = TreeModule(name="")
    modules = {"": root}
    for name, kind in _modules_in_order(first):
        _module(modules, name).kind = kind
    for name, state, part in _outputs(first, reference, held):
        owner = _module(modules, name)
        owner.parts.append(part)
        owner.state = _choose_worse(owner.state, state)
    for part in _parameters(reference, layout, wrong):
        owner = _module(modules, part.name.rpartition(".")[0])
        owner.parts.append(part)
        owner.state = _choose_worse(owner.state, part.state)
    if culprit is not None:
        at = culprit if culprit in modules else culprit.rpartition(".")[0]
        _module(modules, at).state = "wrong"
    return root


def _module(modules: dict[str, TreeModule], name: str) -> TreeModule:
    """Return the module of a name, with those that it is in."""
    if name not in modules:
        modules[name] = TreeModule(name=name)
        _module(modules, name.rpartition(".")[0]).children.append(modules[name])
    return modules[name]


def _choose_worse(one: str, other: str) -> str:
    order = ("unknown", "right", "later", "wrong")
    return max(one, other, key=order.index)


def _modules_in_order(first: ValueRecord) -> Iterator[tuple[str, str]]:
    for event in first.of(ModuleOutput):
        yield event.module, event.module_type


def _outputs(
    first: ValueRecord, reference: Values, held: Mapping[int, Values]
) -> Iterator[tuple[str, str, TreePart]]:
    """Yield each module whose output is kept, with what it is on the ranks at the first step."""
    seen = set()
    apart = find_limit([reference, *held.values()], 0)
    for name, _ in _modules_in_order(first):
        whole = output_of(reference, 0, name)
        if name in seen or whole is None:
            continue
        seen.add(name)
        parts = {rank: output_of(values, 0, name) for rank, values in held.items()}
        present = {rank: part for rank, part in parts.items() if part is not None}
        if len(present) < len(parts):
            words, state = "not seen on all ranks", "unknown"
        else:
            words = name_arrangement(whole, [*present.values()], apart)
            state = "right" if words else "later"
        shown = words or "no arrangement that is known"
        yield name, state, TreePart(name="output", state=state, words=shown, segments={})


def _parameters(reference: Values, layout: Layout, wrong: set[str]) -> Iterator[TreePart]:
    for name, whole in find_first_weights(reference).items():
        places = {
            rank: at for rank, own in layout.items() for at in own.values() if at.name == name
        }
        state = "unknown" if not places else "later" if name in wrong else "right"
        shape = " by ".join(map(str, whole.shape)) or "one number"
        yield TreePart(
            name=name,
            state=state,
            words=f"{shape}; {_words_of(places, whole.shape)}",
            segments={
                rank: _segments(at, whole.shape) for rank, at in [*places.items()][:MOST_RANKS]
            },
        )


def _words_of(places: Mapping[int, Arrangement], shape: tuple[int, ...]) -> str:
    if not places:
        return "on no rank under a known arrangement"
    kinds = {(at.dimension, bool(at.block)) for at in places.values()}
    if any(at.flat is not None for at in places.values()):
        return "split by elements"
    if kinds == {(-1, False)}:
        return "whole on each rank" if len(places) > 1 else f"whole on rank {next(iter(places))}"
    if len(kinds) > 1 or kinds == {(-1, True)}:
        return "in blocks"
    ((dimension, _),) = kinds
    return f"split along dimension {dimension}, which has {shape[dimension]}"


def _segments(at: Arrangement, shape: tuple[int, ...]) -> tuple[tuple[float, float], ...]:
    """Return which parts of a bar a rank has: of the dimension that is split."""
    if at.block:
        sizes = [(end - start) / size for (start, end), size in zip(at.block, shape, strict=True)]
        dimension = min(range(len(sizes)), key=sizes.__getitem__)
        start, end = at.block[dimension]
        return ((start / shape[dimension], end / shape[dimension]),)
    if at.flat is not None:
        size = int(np.prod(shape))
        return ((at.flat[0] / size, at.flat[1] / size),)
    if at.dimension < 0:
        return ((0.0, 1.0),)
    size = shape[at.dimension]
    runs: list[list[int]] = []
    for row in sorted(at.rows):
        if runs and row <= runs[-1][1]:
            runs[-1][1] = row + 1
        else:
            runs.append([row, row + 1])
    return tuple((start / size, end / size) for start, end in runs[:MOST_SEGMENTS])


def draw_page(tree: TreeModule, head: str, problems: Sequence[Problem]) -> str:
    """Return the page: the verdict, the finding, and the tree. It needs nothing else."""
    found = "\n".join(line for problem in problems for line in problem.lines("error"))
    shown = f"<pre>{_text(found)}</pre>" if found else ""
    body = "".join(_draw(each) for each in tree.children)
    parts = "".join(map(_draw_part, tree.parts))
    own = (
        f'<details open class="{tree.state}"><summary>the model '
        f'<span class="of">{_text(tree.kind)}</span></summary>{parts}{body}</details>'
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{_text(head)}</title>'
        f"<style>{STYLE}</style></head><body><h1>n processes against one</h1><p>{_text(head)}</p>"
        f"{shown}{own}</body></html>\n"
    )


def _draw(module: TreeModule) -> str:
    is_open = " open" if _is_wrong(module) else ""
    name = module.name.rpartition(".")[2]
    parts = "".join(map(_draw_part, module.parts))
    return (
        f'<details class="{module.state}"{is_open}><summary><code>{_text(name)}</code> '
        f'<span class="of">{_text(module.kind)}</span></summary>{parts}'
        f"{''.join(map(_draw, module.children))}</details>"
    )


def _is_wrong(module: TreeModule) -> bool:
    """Whether the first wrong module is this one, or is in it."""
    return module.state == "wrong" or any(map(_is_wrong, module.children))


def _draw_part(part: TreePart) -> str:
    bars = "".join(
        f'<span>rank {rank}</span><span class="bar">{"".join(map(_draw_segment, own))}</span>'
        for rank, own in part.segments.items()
    )
    name = part.name.rpartition(".")[2]
    drawn = f'<div class="bars">{bars}</div>' if bars else ""
    return (
        f'<div class="{part.state}"><code>{_text(name)}</code> <span class="of">'
        f"{_text(part.words)}</span></div>{drawn}"
    )


def _draw_segment(segment: tuple[float, float]) -> str:
    start, end = segment
    return f'<i style="left:{100 * start:.2f}%;width:{100 * (end - start):.2f}%"></i>'


def _text(words: Any) -> str:
    return html.escape(clean(str(words)))
