"""Why `scenario bless` leaves a file as it is."""

from __future__ import annotations

from runner.explanations.entry import Explanation


def _refusal(code: str, what: str, why: str, fix: str) -> Explanation:
    return Explanation(code=code, sort="refusal to bless", what=what, why=why, fix=fix)


_ENDING = (
    "How a scenario ends is its author's to state: a hang that is blessed is a test that passes "
)
_ENDING += "because the program is stuck."

BLESSING: tuple[Explanation, ...] = (
    _refusal(
        "program_hangs",
        "The program hangs, and the file does not say so.",
        _ENDING,
        "mend the program, or state `outcome: deadlock` with its `diagnosis:` and bless again: "
        "values that are reached before the hang are then filled in.",
    ),
    _refusal(
        "program_crashes",
        "A process ends, and the file does not say so.",
        _ENDING,
        "mend the program, or state `outcome: crash` with `dies:`.",
    ),
    _refusal(
        "program_raises",
        "A rank raises what no step expects.",
        _ENDING,
        "mend the program, or state `raises:` beside the step.",
    ),
    _refusal(
        "wrong_program",
        "The analysis finds something wrong with the program that is no value.",
        "Values of a wrong program are worth nothing: they are what this backend made of it.",
        "`scenario check` shows the finding whole; mend the program, or state its `diagnosis:`.",
    ),
    _refusal(
        "value_undefined",
        "An operation leaves the value undefined there, or the name does not exist.",
        "What a backend happens to leave behind may be another thing tomorrow.",
        "ask for the value on the ranks that hold one: `x: {0: }`.",
    ),
    _refusal(
        "value_too_large",
        "The value has too many elements to be written out.",
        "A list of thousands of numbers says nothing to a reader.",
        'state it as an expression, or a part of it: `"x[0:4]": `.',
    ),
    _refusal(
        "cases_differ",
        "The cases of the matrix hold different values where one text serves them all.",
        "bless writes values and invents no expression.",
        'state an expression of the matrix keys, such as "full(n, 3)".',
    ),
    _refusal(
        "rounds_differ",
        "The rounds of a loop hold different values, and there are too many to be listed.",
        "bless writes values and invents no expression.",
        "state an expression of the loop's variable, or put the `expect` beside the `for`.",
    ),
    _refusal(
        "used_part",
        "The wrong expectation stands in a part that scenarios `use`.",
        "A part serves several scenarios; what one of them makes of it is not for all.",
        "change the part yourself, or state the value beside the `use`.",
    ),
    _refusal(
        "backend_section",
        "The value is asked for in the section of one backend.",
        "Such a section says what a backend does otherwise than the semantics, and only the "
        "semantics give values to bless.",
        "state the value yourself.",
    ),
    _refusal(
        "shared_value",
        "The value has an anchor, an alias or a tag.",
        "To change it in one place would change it in others.",
        "write the value out.",
    ),
    _refusal(
        "nothing_written",
        "An `expect:` is empty, but no rank writes anything there, or reaches it.",
        "There is no value that it could state.",
        "leave the `expect:` out, or name what it is about.",
    ),
    _refusal(
        "reference_disagrees",
        "The run holds other values than the reference, or ends otherwise.",
        "Which of the two is right is not for bless to decide.",
        "`scenario run` shows where they part; a deviation of the backend goes into its section.",
    ),
    _refusal(
        "runs_differ",
        "The scenario passes in one run and fails in another.",
        "A flaky test is worse than none.",
        "`scenario run --repeat 20` shows how often; look for a race, or a timeout that is short.",
    ),
    _refusal(
        "not_proved",
        "What would be written does not pass the analysis.",
        "Nothing is written that is not proved.",
        "state the value yourself: `scenario check` says what it must be.",
    ),
    _refusal(
        "cannot_run",
        "The backend at hand cannot run the scenario.",
        "No run, no second witness.",
        "bless it where its backend is, or with another `--backend`.",
    ),
    _refusal(
        "left_open",
        "The environment failed, or a bound of the analysis was hit.",
        "What is not known is not written.",
        "raise the bound that the message names, or look at the environment, and bless again.",
    ),
    _refusal(
        "unresolved_conflict",
        "The file holds the marks of a merge that was not resolved.",
        "It is two files at once.",
        "resolve the conflict, then bless.",
    ),
    _refusal(
        "file_changed",
        "The file was changed by somebody else while it was blessed.",
        "Their change would be lost.",
        "bless it again.",
    ),
)
