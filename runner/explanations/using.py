"""Problems of files that use each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.explanations.problem import problem

if TYPE_CHECKING:
    from runner.explanations.entry import Explanation

USING: tuple[Explanation, ...] = (
    problem(
        "not_a_scenario",
        "A file that others use is asked to run by itself.",
        "A file with `inputs:` in place of `world_size:` holds steps without a world.",
        "run a scenario that says `use: {file: ...}`, or give the file a `world_size`.",
    ),
    problem(
        "unknown_input",
        "`with` gives an input that the used file does not declare.",
        "A library lists its inputs at its top.",
        "correct the name.",
    ),
    problem(
        "missing_input",
        "A used file declares an input that `with` does not give.",
        "Every input needs a value; a library may give it a default.",
        "add it under `with`.",
    ),
    problem(
        "input_in_expression",
        "An input of a library is used where its value cannot be put.",
        "Inputs are replaced before the file is read as a scenario.",
        "use the input by itself.",
    ),
    problem(
        "not_a_library",
        "`use` names a file without `inputs:`.",
        "Only a file made for it can be used; a whole scenario has a world of its own.",
        "say `inputs:` at its top instead of `world_size:`.",
    ),
    problem(
        "use_outside_project",
        "`use` names a file outside the project.",
        "A scenario may not read files of the machine it runs on.",
        "copy the file into the project and name it relative to the file that uses it.",
    ),
    problem(
        "use_cycle",
        "Files use each other in a ring.",
        "It would have no end.",
        "break the ring; `for` repeats.",
    ),
)
