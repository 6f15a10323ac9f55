"""What states the shapes that a stage of a pipeline receives.

A schedule sends and receives in one line of the script; what fits is stated in another one::

    stage = PipelineStage(module, rank, world, device, input_args=example)
    schedule.step(x)                       receives what `example` has the shape of
"""

from __future__ import annotations

import ast

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason
from torch_scenarios.record.evidence.script import (
    Script,
    end_of,
    has_line,
    name_of,
    script_at,
)
from torch_scenarios.record.format import RecordedCall

#: what states the shape that a stage receives: of the stage before, and of the one behind it
_ARGUMENTS = {True: ("input_args", 4), False: ("output_args", 5)}
#: what makes more than one stage by one line
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp)
#: lines that are shown of those which set an argument
MOST_LINES = 2


def explain_stage(take: RecordedCall, source: int, target: int, folder: str) -> Reason | None:
    """Return what states the shape that a rank's one stage receives; None where none is seen."""
    name, place_of_name = _ARGUMENTS[source < target]
    for file in dict.fromkeys(file for file, _, _ in take.place.frames):
        script = script_at(file)
        used = next((at for each, at, _ in take.place.frames if each == file), 0)
        line = _find_stage(script, used) if script is not None else 0
        if script is None or not line:
            continue
        given = script.argument(line, {name}, {"PipelineStage": place_of_name})
        if given is None:
            continue
        traces = script.traces(given, line, in_parts=True)
        found = [(each, at) for each, at in traces if not each.keeps_rank(at)][:MOST_LINES]
        lines = ", ".join(each.quote(at, folder) for each, at in found)
        place = script.place(given.lineno, folder)
        words = f"rank {target} receives the shape that its `PipelineStage` states by "
        words += f"`{name}={ast.unparse(given)}` ({place})" + (f", set by {lines}" if lines else "")
        what = "a microbatch" if name == "input_args" else "the gradient of a microbatch"
        fix = (
            f"let `{name}` ({place}) have the shape and the dtype of {what} as the stage of rank "
            f"{source} gives it; or leave it out, and the stages tell each other their shapes."
        )
        return Clause(words), fix
    return None


def _find_stage(script: Script, used: int) -> int:
    """Return the line of the one call that makes the stage of a line; 0 where there are more.

    A loop makes several, unless each is used in the turn that makes it.
    """
    found = [
        node
        for node in ast.walk(script.tree)
        if isinstance(node, ast.Call) and name_of(node.func) == "PipelineStage"
    ]
    if len(found) != 1:
        return 0
    line = found[0].lineno
    is_repeated = any(
        isinstance(node, _LOOPS) and has_line(node, line) and not line < used <= end_of(node)
        for node in ast.walk(script.tree)
    )
    return 0 if is_repeated else line
