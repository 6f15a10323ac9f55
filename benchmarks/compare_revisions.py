"""Whether two revisions say the same of the same programs, but for words.

    python -m benchmarks.compare_revisions 88bc21d            (against the tree as it is)
    python -m benchmarks.compare_revisions 88bc21d HEAD --all --keep /tmp/compared --seconds 540

Each revision analyses, in a process of its own, the corpus of the older one, programs of the
scoreboard (one in `--scoreboard`), and `--random` random programs, as many right as broken; `--all`
takes all of the scoreboard and 2,000 random ones. Of each case are compared: the verdict, the codes
of findings, problems and warnings with their lines, the diagnoses with their ranks; the outcome,
what else may come, how each rank ends and where it may block; the trace: every event of every rank
with its state, its failure's kinds, its values to the bit and its error bounds; and what `check
--json` writes, field by field, without durations and with each text of several words as one and the
same. What differs is listed by kind, with the first few cases of each; a field that one revision
alone writes is a kind of its own.

It takes many minutes. With `--keep` what was found so far stays in a folder, and `--seconds` ends a
piece of the work: the same command goes on from there, until all is compared.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
#: cases that are listed of each kind of difference
SHOWN = 6
#: files that are answered for together, between two looks at the clock
TOGETHER = 60
#: what each text of several words is taken for
WORDS = "..."
#: exit code of a piece of the work that is not the last one
UNFINISHED = 3


def main() -> None:
    """Compare, and exit 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before", help="a revision")
    parser.add_argument("after", nargs="?", help="another one; left out, the tree as it is")
    parser.add_argument("--corpus", type=int, default=1, metavar="N", help="one file in N")
    parser.add_argument("--scoreboard", type=int, default=20, metavar="N", help="one program in N")
    parser.add_argument("--random", type=int, default=200, metavar="N", help="so many programs")
    parser.add_argument("--all", action="store_true", help="every program, and 2,000 random ones")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what is found, and go on")
    parser.add_argument("--seconds", type=float, metavar="S", help="end this piece after S seconds")
    parser.add_argument("--shown", type=int, default=SHOWN, metavar="N", help="cases of each kind")
    options = parser.parse_args()
    if options.all:
        options.scoreboard, options.random = 1, 2000
    ends_s = time.monotonic() + (options.seconds or float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        work = (options.keep or Path(folder)).resolve()
        work.mkdir(exist_ok=True, parents=True)
        before = checked_out(options.before, work / "before")
        after = checked_out(options.after, work / "after") if options.after else ROOT
        list_of_files = work / "files"
        if not list_of_files.exists():
            # the files of the older tree: what the language got since then it could not read
            files = sorted((before / "scenarios").rglob("*.yaml"))[:: options.corpus]
            files += written(options.scoreboard, options.random, work / "programs")
            list_of_files.write_text("\n".join(map(str, files)), encoding="utf-8")
        found = []
        for tree, name in ((before, "before"), (after, "after")):
            at = answered(tree, list_of_files, work / f"{name}.jsonl", ends_s)
            if at is not None:
                print(f"{name}: {at}; the same command goes on from there")
                sys.exit(UNFINISHED)
            found.append(read(work / f"{name}.jsonl"))
    sys.exit(report(*found, shown=options.shown))


def checked_out(revision: str, folder: Path) -> Path:
    """Return a folder with the files of a revision."""
    if folder.exists():
        return folder
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

    folder.mkdir(exist_ok=True)
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


def answered(tree: Path, files: Path, answers: Path, ends_s: float) -> str | None:
    """Let a tree answer for the files that it has not answered for, until the clock says so.

    Returns how far it has come; None where it has answered for all of them.
    """
    left_s = max(0.0, ends_s - time.monotonic())
    command = [sys.executable, "-P", __file__, "--answer", str(files), str(answers), str(left_s)]
    # the folder that holds the package: the tree itself, while the package was called `runner`
    package = tree if (tree / "runner" / "__init__.py").exists() else tree / "runner"
    environment = {**os.environ, "PYTHONPATH": str(package), "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run(command, check=True, env=environment, cwd=tree)
    done, count = done_of(answers), len(files.read_text(encoding="utf-8").splitlines())
    return None if done == count else f"{done} of {count} files"


def done_of(answers: Path) -> int:
    """Return for how many files answers are whole."""
    lines = answers.read_text(encoding="utf-8").splitlines() if answers.exists() else []
    return max((json.loads(line) for line in lines if line.isdigit()), default=0)


def read(answers: Path) -> dict[str, Any]:
    """Return what a tree says of each case."""
    lines = answers.read_text(encoding="utf-8").splitlines()
    return dict(json.loads(line) for line in lines if not line.isdigit())


def report(before: dict[str, Any], after: dict[str, Any], *, shown: int = SHOWN) -> int:
    """Print what differs, by kind; return the exit code."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for case in [*before, *(case for case in after if case not in before)]:
        old, new = before.get(case), after.get(case)
        if old is None or new is None:
            kinds["a case of one of them alone"].append(case)
            continue
        for key in dict.fromkeys([*old, *new]):
            if key not in old or key not in new:
                kinds[f"{key}, of one of them alone"].append(case)
            elif old[key] != new[key]:
                told = f"{case}: {short(old.get(key))} -> {short(new.get(key))}"
                kinds[key].append(told)
    verdicts = Counter(each["verdict"] for each in after.values())
    counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    differing = {each.partition(": ")[0] for found in kinds.values() for each in found}
    print(f"{len(after)} cases ({counts}): {len(differing)} differ")
    for kind, found in kinds.items():
        print(f"\n{kind}: {len(found)}")
        print("\n".join(f"  {each}" for each in found[:shown]))
    return int(bool(kinds))


def short(value: object) -> str:
    """Return a value in one line."""
    text = json.dumps(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


# ---------------------------------------------------------------------- in a process of each tree


def answer(files: list[str], answers: Path, seconds: float) -> None:
    """Add a line of JSON for each case of the files: its name, and what this tree says of it.

    Behind the cases of some files comes a line with the number of files that are done. What stands
    behind the last such line is of a process that was ended, and is taken away.
    """
    ends_s = time.monotonic() + seconds
    done = done_of(answers)
    with answers.open("a+", encoding="utf-8") as out:
        out.seek(0)
        kept = 0
        for line in iter(out.readline, ""):
            kept = out.tell() if line.strip().isdigit() else kept
        out.truncate(kept)
        while done < len(files) and time.monotonic() < ends_s:
            some = files[done : done + TOGETHER]
            documents = documents_of(some)
            for number, file in enumerate(some, start=done):
                for case, said in answers_of(number, file):
                    said.update(documents.pop((file, case.rpartition("::")[2]), {}))
                    out.write(json.dumps([case, said]) + "\n")
            for (file, case), said in documents.items():
                out.write(
                    json.dumps([f"json {'/'.join(Path(file).parts[-3:])}::{case}", said]) + "\n"
                )
            done += len(some)
            out.write(f"{done}\n")
            out.flush()


def imported_package() -> Any:
    """Return the package of this process's tree, by its name of today or of before."""
    name = "torch_scenarios" if importlib.util.find_spec("torch_scenarios") else "runner"
    return importlib.import_module(name)


def answers_of(number: int, file: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the cases of a file, and what this tree says of each."""
    package = imported_package()
    name = "/".join(Path(file).parts[-3:])
    try:
        cases = package.load(file)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is compared
        yield f"{number} {name}", {"verdict": "INVALID", **raised(error)}
        return
    for case in cases:
        yield f"{number} {name}::{case.case}", said_of(package, case)


def documents_of(files: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the fields of `check --json` for each case of some files, without words and times."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        command = [
            sys.executable,
            "-P",
            "-m",
            f"{imported_package().__name__}.cli",
            "check",
            *files,
            "--json",
            str(path),
        ]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        results = json.loads(path.read_text(encoding="utf-8"))["results"]
    whole = {str(Path(file).resolve()): file for file in files}
    return {
        (whole.get(str(Path(each["file"]).resolve()), each["file"]), each["case"] or ""): fields_of(
            each
        )
        for each in results
    }


def fields_of(document: dict[str, Any]) -> dict[str, list[Any]]:
    """Return what a document has at each path, in order; texts of several words are all alike.

    Left out are durations, and the lines for a terminal, which are words.
    """
    found: dict[str, list[Any]] = defaultdict(list)

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{path}.{key}")
        elif isinstance(value, list):
            for item in value:
                walk(item, f"{path}[]")
        else:
            found[path].append(WORDS if isinstance(value, str) and " " in value else value)

    for key, value in document.items():
        if key not in ("duration_s", "text"):
            walk(value, f"json: {key}")
    return dict(found)


def said_of(package: Any, scenario: Any) -> dict[str, Any]:
    """Return what this tree says of a case, without its words."""
    try:
        predicted = package.simulate(package.plan(scenario))
        verdict = package.judge(scenario, predicted)
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
        names, into, seconds = sys.argv[2:]
        answer(Path(names).read_text(encoding="utf-8").splitlines(), Path(into), float(seconds))
    else:
        main()
