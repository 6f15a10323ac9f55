"""The words of every report: verdicts, outcomes, and the limits on what a file may ask for."""

from __future__ import annotations

from runner.errors import Explanation
from runner.limits import BOUNDS, DEFAULT


def _verdict(code: str, what: str, why: str, fix: str = "") -> Explanation:
    return Explanation(code=code, sort="verdict", what=what, why=why, fix=fix)


def _outcome(code: str, what: str, why: str) -> Explanation:
    fix = f"where it is intended, state it: `expect: {{outcome: {code}}}`."
    return Explanation(code=code, sort="outcome", what=what, why=why, fix=fix)


VERDICTS = (
    _verdict(
        "PASSED",
        "Expectation, semantics and run agree.",
        "Every tensor that a step writes was compared on every rank, stated or not. `scenario "
        "check` compares the first two alone.",
    ),
    _verdict(
        "FAILED",
        "Expectation, semantics and run do not agree.",
        "Each `error[...]` below the case names what differs, with the place in the file. The exit "
        "code is 1.",
        "`scenario explain` knows the word in the brackets.",
    ),
    _verdict(
        "FLAKY",
        "Several runs of one case did not end the same.",
        "With `--repeat` a case runs several times, and it passes only where each run does. A race "
        "of messages is the usual cause. The exit code is 1.",
        "`scenario check` names the races that the semantics allow.",
    ),
    _verdict(
        "INCONCLUSIVE",
        "The environment decided, not the scenario.",
        "A worker could not start, a timeout has no explanation, or a limit was reached. The "
        "reason is below the case. The exit code is 3, unless a case failed.",
        "correct the environment and run it again; a limit is raised with `--limit NAME=N`.",
    ),
    _verdict(
        "UNSUPPORTED",
        "This backend, or this version of torch, cannot run the scenario.",
        "It is counted and shown. It is neither a pass nor a failure, and does not change the exit "
        "code.",
        "choose another backend with `--backend`.",
    ),
    _verdict(
        "INVALID",
        "The file is not a scenario, or the command line is wrong.",
        "Each problem is shown with its place. Where one file is INVALID no process starts, and "
        "the exit code is 2.",
        "`scenario explain` knows the word in the brackets.",
    ),
)

OUTCOMES = (
    _outcome(
        "completes",
        "Every rank reaches the end of the program.",
        "It is expected where a file states no outcome.",
    ),
    _outcome(
        "deadlock",
        "At least one rank waits and can never go on.",
        "The analysis proves it, with the ranks, their steps and the cause as a diagnosis. A run "
        "confirms it as soon as every rank waits where the proof says, long before a timeout.",
    ),
    _outcome(
        "error",
        "At least one rank raises, and none is left waiting.",
        "torch refuses a call, or a rank raises by itself; `raises:` states the kind of error.",
    ),
    _outcome(
        "crash",
        "A process ends before its program does.",
        "A `fault` step kills it, or the backend aborts; `dies:` states how.",
    ),
)


def _word(code: str, what: str, why: str = "", fix: str = "") -> Explanation:
    return Explanation(code=code, sort="word", what=what, why=why, fix=fix)


WORDS = (
    _word(
        "blocked",
        "A rank waits in a step and cannot go on.",
        "It is surely blocked where no correct implementation could let it pass, and possibly "
        "blocked where the semantics leave it open: the source of a broadcast need not wait.",
        "`blocked:` states the ranks that are surely blocked, each with its step.",
    ),
    _word(
        "predicted",
        "What the reference semantics make of the program, without a process.",
        "`scenario check` compares it with what the file states, `scenario run` with both.",
    ),
    _word("observed", "What the processes of a run did.", "`scenario run` compares it."),
    _word(
        "perhaps",
        "A guess at the mistake, from the numbers.",
        "The wrong numbers are exactly those that such a mistake gives, on every rank that "
        "differs. It changes no verdict.",
    ),
    _word(
        "warning",
        "What passes and should be looked at.",
        "It is shown and counted. The word in its brackets has a page of its own.",
        "with `--strict` a case with a warning is FAILED.",
    ),
    _word(
        "interrupted",
        "The command was ended from outside, as by Ctrl-C.",
        "What was finished is reported, the rest is counted as not run. The exit code is 130.",
    ),
)

LIMITS = Explanation(
    code="limits",
    sort="limits",
    what="Bounds on what a file may ask for: memory, time, ranks, steps.",
    why="A scenario is data, and may come from a stranger: it is counted before it is computed, so "
    "that no file takes a machine for itself. A case beyond a limit is INVALID or INCONCLUSIVE, "
    "and the message names the limit.",
    fix="raise it on the command line, `--limit ranks=128`; a project may only lower one, in "
    "`[tool.scenario]`, as `max-ranks = 16`. `--max-ranks 128` says the same as the first.",
    table=tuple(
        (
            str(each.metadata["flag"]).removeprefix("--max-"),
            f"{getattr(DEFAULT, each.name)}: {each.metadata['counts']}",
        )
        for each in BOUNDS
    ),
)
