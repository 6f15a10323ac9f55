"""Whether two revisions say the same of the same programs, but for words.

    python -m benchmarks.compare_revisions 88bc21d            (against the tree as it is)
    python -m benchmarks.compare_revisions 88bc21d --scoreboard 1 --random 2000

Each revision analyses, in a process of its own, the corpus of the older one, programs of the
scoreboard (one in `--scoreboard`), and `--random` random programs, as many right as broken. Of each
case are compared: the verdict, the codes of findings, problems and warnings with their lines, the
diagnoses with their ranks; the outcome, what else may come, how each rank ends and where it may
block; and the trace: every event of every rank with its state, its failure's kinds, its values to
the bit and its error bounds. What differs is listed by kind, with the first few cases of each.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
#: cases that are listed of each kind of difference
SHOWN = 6


def main() -> None:
    """Compare, and exit 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", help="a revision")
    parser.add_argument("after", nargs="?", help="another one; left out, the tree as it is")
    parser.add_argument("--corpus", type=int, default=1, metavar="N", help="one file in N")
    parser.add_argument("--scoreboard", type=int, default=20, metavar="N", help="one program in N")
    parser.add_argument("--random", type=int, default=200, metavar="N", help="so many programs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        before = checked_out(options.before, work / "before")
        after = checked_out(options.after, work / "after") if options.after else ROOT
        # the files of the older tree: what the language got since then it could not read
        files = sorted((before / "scenarios").rglob("*.yaml"))[:: options.corpus]
        files += written(options.scoreboard, options.random, work / "programs")
        (work / "files").write_text("\n".join(map(str, files)), encoding="utf-8")
        found = [answers(tree, work / "files") for tree in (before, after)]
    sys.exit(report(*found))


def checked_out(revision: str, folder: Path) -> Path:
    """Return a folder with the files of a revision."""
    command = ["git", "-C", str(ROOT), "archive", revision]
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def written(stride: int, count: int, folder: Path) -> list[Path]:
    """Write the scoreboard's programs and random ones into files; the same ones every time."""
    from hypothesis import HealthCheck, Phase, given, seed, settings

    from benchmarks.scoreboard.catalogue import programs as scoreboard

    sys.path.append(str(ROOT / "tests" / "shared"))
    from random_programs import programs

    folder.mkdir()
    texts = {program.name: program.text for program in scoreboard()[::stride]}
    for wrong in (False, True):

        @seed(1)
        @given(programs(wrong=wrong))
        @settings(
            max_examples=count // 2,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def keep(text: str) -> None:
            texts[f"random_{len(texts)}"] = text

        keep()
    files = []
    for name, text in texts.items():
        files.append(folder / f"{re.sub('[^a-zA-Z0-9_-]', '_', name)}.yaml")
        files[-1].write_text(text, encoding="utf-8")
    return files


def answers(tree: Path, files: Path) -> dict[str, Any]:
    """Return what a tree says of each case."""
    command = [sys.executable, "-P", __file__, "--answer", str(files)]
    environment = {**os.environ, "PYTHONPATH": str(tree), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree
    )
    return dict(json.loads(line) for line in done.stdout.splitlines())


def report(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print what differs, by kind; return the exit code."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for case in [*before, *(case for case in after if case not in before)]:
        old, new = before.get(case), after.get(case)
        if old is None or new is None:
            kinds["a case of one of them alone"].append(case)
            continue
        for key in dict.fromkeys([*old, *new]):
            if old.get(key) != new.get(key):
                told = f"{case}: {short(old.get(key))} -> {short(new.get(key))}"
                kinds[key].append(told)
    verdicts = Counter(each["verdict"] for each in after.values())
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    differing = {each.partition(": ")[0] for found in kinds.values() for each in found}
    print(f"{len(after)} cases ({counts}): {len(differing)} differ")
    for kind, found in kinds.items():
        print(f"\n{kind}: {len(found)}")
        print("\n".join(f"  {each}" for each in found[:SHOWN]))
    return int(bool(kinds))


def short(value: object) -> str:
    """Return a value in one line."""
    text = json.dumps(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


# ---------------------------------------------------------------------- in a process of each tree


def answer(files: list[str]) -> None:
    """Print a line of JSON for each case of the files: its name, and what this tree says of it."""
    import runner

    for number, file in enumerate(files):
        name = "/".join(Path(file).parts[-3:])
        try:
            cases = runner.load(file)
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is compared
            print(json.dumps([f"{number} {name}", {"verdict": "INVALID", **raised(error)}]))
            continue
        for case in cases:
            print(json.dumps([f"{number} {name}::{case.case}", said_of(runner, case)]))


def said_of(runner: Any, scenario: Any) -> dict[str, Any]:
    """Return what this tree says of a case, without its words."""
    try:
        predicted = runner.simulate(runner.plan(scenario))
        verdict = runner.judge(scenario, predicted)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is compared
        return {"verdict": "INVALID", **raised(error)}
    return {
        "verdict": verdict.status,
        "findings": sorted(
            [each.code, each.witness, getattr(each.mark, "line", 0), list(each.ranks)]
            for each in verdict.findings
        ),
        "problems": coded(verdict.problems),
        "warnings": coded(verdict.warnings),
        "compared": verdict.compared,
        "diagnoses": sorted([each.name, list(each.ranks)] for each in predicted.diagnoses),
        "outcome": predicted.outcome,
        "open": sorted(predicted.open),
        "waits": sorted([each.waiter, each.peer] for each in predicted.waits),
        "endings": [[each.ending, each.died] for each in predicted.ranks],
        "may block": [sorted(map(str, each.may_block)) for each in predicted.ranks],
        "forecasts": sorted(f"{k}: {v.outcome}" for k, v in predicted.forecasts.items()),
        "steps": [digest([placed(event) for event in each.events]) for each in predicted.ranks],
        "values": [
            digest([plain(event.writes) for event in each.events]) for each in predicted.ranks
        ],
        "error bounds": [
            digest([plain(event.slack) for event in each.events]) for each in predicted.ranks
        ],
        "links": [digest(plain(dict(each.links))) for each in predicted.ranks],
    }


def raised(error: Exception) -> dict[str, Any]:
    """Return the problems that an exception carries."""
    return {"problems": coded(getattr(error, "problems", ())), "error": type(error).__name__}


def coded(problems: Any) -> list[list[Any]]:
    """Return the code and the line of each problem."""
    return sorted([each.code, getattr(each.mark, "line", 0)] for each in problems)


def placed(event: Any) -> list[Any]:
    """Return where and when an event is, and how its call failed."""
    failure = sorted(event.failure.kinds) if event.failure is not None else None
    return [event.index, event.iteration, event.state, event.start_s, event.end_s, failure]


def digest(value: Any) -> str:
    """Return a few characters that are the same for the same value."""
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def plain(value: Any) -> Any:
    """Return a value so that equal ones have the same digest, and no others."""
    if isinstance(value, dict) or hasattr(value, "items"):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tobytes"):
        return [str(value.dtype), list(value.shape), value.tobytes().hex()]
    return type(value).__name__ if hasattr(value, "cause") else list(walked(value))


def walked(value: Any) -> Iterator[str]:
    """Yield what tells a number or a word from any other."""
    yield type(value).__name__
    yield repr(value)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--answer"]:
        answer(Path(sys.argv[2]).read_text(encoding="utf-8").splitlines())
    else:
        main()
