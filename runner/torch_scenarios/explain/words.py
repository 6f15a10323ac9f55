"""The words of every report: verdicts, outcomes, and the limits on what a file may ask for."""

from __future__ import annotations

from torch_scenarios.errors import Explanation
from torch_scenarios.limits import COUNTS, DEFAULT, FLAGS


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
        "note",
        "A fact that changes no verdict.",
        "`-v` shows the notes of each case. Below an `error[...]`, a line that begins with "
        "`file:line` names a second place that has to do with it.",
    ),
    _word(
        "help",
        "What to write, or to read, next.",
        "The lines below it can be pasted into the file as they are.",
    ),
    _word(
        "rank",
        "One process of the program, by its number in the world, from 0.",
        "In a table of values a row has the values of one rank, or of several with equal ones.",
    ),
    _word(
        "step",
        "One entry of `steps:`; a rank takes those that select it, in their order.",
        "A message names a step as `operation` or by its `name:`, with `file:line`.",
        "`scenario run FILE:LINE` shows what each rank holds after the step at that line.",
    ),
    _word(
        "tensor",
        "An array that a rank holds under a name, from `tensors:` or from a step.",
        "A name with no value on a rank does not exist there. To pass it passes None.",
    ),
    _word(
        "group",
        "A set of ranks that communicate with each other: torch's process group.",
        "`groups:` names them. `world` has every rank.",
    ),
    _word(
        "case",
        "One program of a file: one combination of its `matrix:` and `cases:`.",
        "Its name is `file.yaml::case`, here, in pytest and in every report. The file's name alone "
        "means all of its cases.",
    ),
    _word(
        "shard",
        "One part of the cases: `--shard 1/4` runs the first of four.",
        "It takes every fourth case. `scenario merge` joins the results of all.",
    ),
    _word(
        "strict",
        "With `--strict` a warning is a failure.",
        "A case that would pass with a warning is FAILED.",
        "change what the warning names, or leave `--strict` out.",
    ),
    _word(
        "workers",
        "The processes that run a scenario, one for each rank.",
        "`workers ready in 2.4 s` is the time to import torch and start them. It belongs to the "
        "run and not to a case. The next cases use the same workers.",
    ),
    _word(
        "launch",
        "The processes that run cases, one after the other.",
        "`--jobs N` runs cases on N launches side by side. Where a scenario ends a process, the "
        "next case gets a new launch.",
    ),
    _word(
        "cost",
        "How many rounds and messages a program takes, and the bytes that a rank sends.",
        "It is counted without a run. `-v` shows it, and `expect: {cost: ...}` states it.",
    ),
    _word(
        "hosts",
        "Which ranks were on which machine, where a run has several.",
    ),
    _word(
        "diagnosis",
        "The name of what is wrong with a program, as in `error[circular_wait]`.",
        "The analysis finds it without a run. `expect: {diagnosis: NAME}` states one that is "
        "intended.",
        "`scenario explain` without a word lists every name.",
    ),
    _word(
        "outcome",
        "How a program ends: completes, deadlock, error or crash.",
        "Each has a page of its own. `expect: {outcome: ...}` states it.",
    ),
    _word(
        "abandoned",
        "A case whose file was saved while it ran, under `--watch`.",
        "It is run again, as the file is now.",
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
            FLAGS[name].removeprefix("--max-"),
            f"{getattr(DEFAULT, name)}: {counts}",
        )
        for name, counts in COUNTS.items()
    ),
)
