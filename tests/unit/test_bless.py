"""Bless: what is missing or wrong is filled in, and nothing else of the file changes."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner, Result
from judging import raising, writing
from msgspec.structs import replace

from torch_scenarios.bless import CODES, NotBlessedError, confirm, propose, write
from torch_scenarios.cli import cli
from torch_scenarios.errors import UnsupportedError
from torch_scenarios.explain import EXPLANATIONS
from torch_scenarios.source.edit import CannotWordError, state_values, word_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch_scenarios.bless import Proposal
    from torch_scenarios.model.plan import Plan
    from torch_scenarios.model.trace import Trace

SUM = """\
# what it is about
world_size: 2   # two
tensors:
  x: "full(2, rank + 1)"
  y: "full(1, rank)"
steps:
"""


def proposal(text: str, *, every: bool = False, path: Path = Path("blessed.yaml")) -> Proposal:
    found = propose(path, text.encode(), every=every)
    assert found is not None
    return found


def blessed(steps: str, *, every: bool = False) -> str:
    """Return what comes of some steps, and see that the head of the file stays."""
    after = proposal(SUM + steps, every=every).after
    assert after.startswith(SUM)
    return after.removeprefix(SUM)


def refused(text: str, *, path: Path = Path("blessed.yaml")) -> tuple[str, str]:
    with pytest.raises(NotBlessedError) as caught:
        proposal(text, path=path)
    (refusal,) = caught.value.refusals
    assert refusal.code in CODES
    return refusal.code, refusal.message


@pytest.mark.parametrize(
    "open_", ["", " null", " ~", " ...", "   # sum of both", " [9, 9]", ' "x + 1"']
)
def test_a_value_that_is_open_or_wrong_is_filled_in(open_: str) -> None:
    steps = f"  - all_reduce: {{tensor: x}}  # sum\n    expect:\n      x:{open_}\n      y: [0]\n"
    steps = steps.replace("y: [0]", "y: {0: [0], 1: [1]}")
    comment = "   # sum of both" if "#" in open_ else ""
    expected = steps.replace(f"x:{open_}\n", f"x: [3, 3]{comment}\n")
    assert blessed(steps) == expected


def test_the_number_of_a_full_tensor_is_put_right() -> None:
    text = "world_size: 2\nmatrix: {n: [2, 3]}\ntensors: {x: 'full([n, 2], rank + 1)'}\nsteps:\n"
    text += "  - all_reduce: {tensor: x}\n    expect:\n      x: 'full([n, 2], -4)'  # all of it\n"
    assert proposal(text).after == text.replace("-4", "3")
    assert refused(text.replace("[n, 2], -4", "2, 3"))[0] == "cases_differ"


def test_only_the_branch_that_is_wrong_changes() -> None:
    steps = (
        "  - expect:\n      y:\n        # the first\n        0: [0]\n        else: [7]  # others\n"
    )
    assert blessed(steps) == steps.replace("[7]", "[1]")


def test_a_branch_for_ranks_that_differ_becomes_several() -> None:
    text = "world_size: 3\ntensors: {x: [rank]}\nsteps:\n  - expect:\n      x:\n        0: [0]\n"
    assert proposal(text + "        else: [7]\n").after == (
        text + "        1: [1]\n        2: [2]\n"
    )
    text = "world_size: 3\ntensors: {x: [rank]}\nsteps:\n  - expect: {x: {0: [0], else: ...}}\n"
    assert proposal(text).after.endswith("{x: {0: [0], 1: [1], 2: [2]}}\n")


def test_an_empty_expect_is_about_what_the_step_writes() -> None:
    steps = "  - all_reduce: {tensor: x}\n    expect:   # of both\n  - barrier: {}\n"
    assert blessed(steps) == steps.replace("# of both\n", "# of both\n      x: [3, 3]\n")
    steps = "  - {all_reduce: {tensor: x}, expect: {}}\n"
    assert blessed(steps) == steps.replace("expect: {}", "expect: {x: [3, 3]}")


def test_a_file_that_expects_nothing_states_what_each_step_writes() -> None:
    steps = "  - all_reduce: {tensor: x}\n  # then\n  - barrier: {}\n  - compute: {z: y * 2}"
    assert blessed(steps) == (
        "  - all_reduce: {tensor: x}\n    expect:\n      x: [3, 3]\n  # then\n  - barrier: {}\n"
        "  - compute: {z: y * 2}\n    expect:\n      z: {0: [0], 1: [2]}"
    )


def test_a_file_that_expects_something_is_complete_unless_asked() -> None:
    steps = "  - all_reduce: {tensor: x}\n  - compute: {z: x + y}\n    expect: {y: {1: [1]}}\n"
    assert blessed(steps) == steps
    assert blessed(steps, every=True) == (
        "  - all_reduce: {tensor: x}\n    expect:\n      x: [3, 3]\n"
        "  - compute: {z: x + y}\n    expect: {y: {1: [1]}, z: {0: [3, 3], 1: [4, 4]}}\n"
    )


def test_a_loop_is_stated_after_its_last_round() -> None:
    steps = '  - for: {i: "range(2)"}\n    steps:\n      - all_reduce: {tensor: x}\n'
    assert blessed(steps) == steps + "    expect:\n      x: [6, 6]\n"


def test_rounds_that_differ_are_told_apart() -> None:
    steps = '  - for: {i: "range(2)"}\n    steps:\n      - all_reduce: {tensor: x}\n'
    steps += "        expect: {x: }\n"
    assert blessed(steps) == steps.replace("x: }", 'x: {"i == 0": [3, 3], "i == 1": [6, 6]}}')


def test_what_is_undefined_is_left_out() -> None:
    steps = "  - reduce: {tensor: x, dst: 1}\n"
    assert blessed(steps) == steps + "    expect:\n      x: {1: [3, 3]}\n"


def test_a_shape_and_a_dtype_are_stated_of_what_is_undefined_too() -> None:
    steps = "  - reduce: {tensor: x, dst: 1}\n    expect:\n      x: {dtype: float32, shape: [2]}\n"
    assert proposal(SUM + steps).after == SUM + steps
    assert blessed(steps.replace("float32", "int8").replace("[2]", "")) == steps
    code, message = refused(SUM + steps.replace("dtype: float32", "value: [3, 3]"))
    assert code == "value_undefined"
    assert "on rank 0 after" in message


def test_the_long_form_is_filled_in_part_by_part() -> None:
    steps = "  - expect:\n      x: {value: , rtol: 1e-3}\n      y: {dtype: float64, shape: }\n"
    expected = steps.replace("value: ,", "value: {0: [1, 1], 1: [2, 2]},")
    assert blessed(steps) == expected.replace("float64, shape: ", "float32, shape: [1]")


def test_the_end_and_objects_are_filled_in() -> None:
    text = "world_size: 2\nobjects:\n  o: {a: {expr: rank}, b: 'yes'}\n  l: [null, null]\nsteps:\n"
    text += "  - all_gather_object: {obj: o, object_list: l}\nexpect:\n"
    assert proposal(text).after == text + "  l: [{a: 0, b: 'yes'}, {a: 1, b: 'yes'}]\n"


def test_line_ends_and_the_byte_order_mark_stay(tmp_path: Path) -> None:
    path = tmp_path / "marked.yaml"
    text = (SUM + "  - all_reduce: {tensor: x}\n    expect:\n").replace("\n", "\r\n")
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    path.chmod(0o640)
    found = propose(path, path.read_bytes())
    assert found is not None
    write(found)
    assert path.read_bytes() == b"\xef\xbb\xbf" + text.encode() + b"      x: [3, 3]\r\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in tmp_path.iterdir()] == ["marked.yaml"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    path, link = tmp_path / "file.yaml", tmp_path / "link.yaml"
    path.write_text(SUM + "  - all_reduce: {tensor: x}\n", encoding="utf-8")
    link.symlink_to(path)
    found = propose(link, link.read_bytes())
    assert found is not None
    write(found)
    assert link.is_symlink()
    assert "expect" in path.read_text(encoding="utf-8")


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "changed.yaml"
    path.write_text(SUM + "  - all_reduce: {tensor: x}\n", encoding="utf-8")
    found = propose(path, path.read_bytes())
    assert found is not None
    path.write_text(SUM + "  - barrier: {}\n", encoding="utf-8")
    with pytest.raises(NotBlessedError, match="changed while"):
        write(found)
    assert path.read_text(encoding="utf-8") == SUM + "  - barrier: {}\n"


# ---------------------------------------------------------------------------- how values are said


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.array([1, 0.1, -2.5], np.float32), "[1, 0.1, -2.5]"),
        (np.float32(1) / 3, "0.3333333"),
        (np.float64(0.1) + np.float64(0.2), "0.3"),
        (np.array([np.nan, np.inf, -np.inf], np.float32), "[.nan, .inf, -.inf]"),
        (np.float32(1e-20), "1e-20"),
        (np.float64(1e20), "1e20"),
        (np.array(1.0078125, ml_dtypes.bfloat16), "1.01"),
        (np.array([2**62 + 1]), "[4611686018427387905]"),
        (np.array([True, False]), "[true, false]"),
        (np.zeros([2, 0]), "{shape: [2, 0]}"),
        (np.zeros([0]), "[]"),
        (np.full([3, 40], 2.0), "{value: 2, shape: [3, 40]}"),
        (np.array([1 + 2j, 3], np.complex64), '"[1 + 2j, 3]"'),
        (np.array([1, 2], np.complex64), "[1, 2]"),
        ([np.zeros(1), np.ones(2)], "[[0], [1, 1]]"),
        ({"a": [1, None, "on"]}, "{a: [1, null, 'on']}"),
        (True, "true"),
    ],
    ids=str,
)
def test_a_value_is_said_shortly(value: object, text: str) -> None:
    assert word_value(value) == text


def test_a_large_value_takes_an_expression() -> None:
    with pytest.raises(CannotWordError, match="has 1000 elements: state them as an expression"):
        word_value(np.arange(1000))


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({0: "a", 1: "a"}, "a"),
        ({0: "a", 1: "b"}, "{0: a, 1: b}"),
        ({0: "a", 1: None}, "{0: a}"),
        ({0: "a", 1: "b", 2: "b"}, "{0: a, else: b}"),
        ({0: "a", 1: "b", 2: "b", 3: None}, '{0: a, "[1, 2]": b}'),
        ({0: "a", 1: "b", 2: "a", 3: "b"}, "{even: a, else: b}"),
        ({0: "a", 1: "b", 2: "a", 3: None}, "{even: a, 1: b}"),
        ({**dict.fromkeys(range(4), "a"), 4: None}, '{"range(4)": a}'),
        ({4: None, **dict.fromkeys(range(5, 9), "a")}, '{"range(5, 9)": a}'),
    ],
    ids=str,
)
def test_ranks_with_equal_values_are_said_together(
    values: dict[int, str | None], line: str
) -> None:
    assert state_values(values, {frozenset({0, 2}): "even"}).line == line


# ---------------------------------------------------------------------------- what is refused


def test_every_refusal_is_explained() -> None:
    assert CODES.keys() <= EXPLANATIONS.keys()
    assert {EXPLANATIONS[code].sort for code in CODES} == {"refusal to bless"}


HANG = "  - ranks: 0\n    send: {tensor: x, dst: 1}\n    expect: {x: }\n"


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        (HANG, "program_hangs"),
        ("  - fault: kill\n    ranks: 1\n    expect: {x: }\n", "program_crashes"),
        ("  - fault: {raise: no}\n    ranks: 1\n", "program_raises"),
        ("  - reduce: {tensor: x, dst: 1}\n    expect: {x: {0: }}\n", "value_undefined"),
        ("  - reduce: {tensor: x, dst: 1}\n    expect: {x: [3, 3]}\n", "value_undefined"),
        ("  - barrier: {}\n    expect: {}\n", "nothing_written"),
        ("  - ranks: []\n    all_reduce: {tensor: x}\n    expect: {x: }\n", "nothing_written"),
        ("  - expect: {x: &a [7, 7]}\n", "shared_value"),
        ('  - compute: {z: "arange(999)"}\n', "value_too_large"),
        ("  - barrier: {}\nexpect:\n  gloo: {x: }\n", "backend_section"),
        ("<<<<<<< HEAD\n  - barrier: {}\n=======\n", "unresolved_conflict"),
    ],
)
def test_what_cannot_be_blessed_is_refused(steps: str, code: str) -> None:
    assert refused(SUM + steps)[0] == code


def test_a_hang_that_is_stated_keeps_its_values() -> None:
    steps = "  - all_reduce: {tensor: x}\n    expect: {x: }\n" + HANG.replace("x: ", "y: ")
    end = "expect:\n  outcome: deadlock\n  diagnosis: unmatched_send\n"
    after = blessed(steps.replace("    expect: {y: }\n", "") + end)
    assert after.startswith("  - all_reduce: {tensor: x}\n    expect: {x: [3, 3]}\n")
    assert after.endswith(end)


def test_cases_that_differ_are_refused() -> None:
    text = "world_size: 2\nmatrix: {n: [1, 2]}\ntensors: {x: 'full(1, n)'}\nsteps:\n"
    code, message = refused(text + "  - all_reduce: {tensor: x}\n")
    assert code == "cases_differ"
    assert "[2] in blessed[n=1] and [4] in blessed[n=2]" in message


def test_cases_of_other_dtypes_share_a_text() -> None:
    text = "world_size: 2\nmatrix: {d: [bool, complex64, float32]}\n"
    text += "tensors: {x: {dtype: d, value: [1, 0]}}\nsteps:\n  - broadcast: {tensor: x, src: 0}\n"
    assert proposal(text).after.endswith("      x: [1, 0]\n")


def test_a_used_part_is_never_changed(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    part = "inputs: [t]\nsteps:\n  - all_reduce: {tensor: t}\n    expect: {t: [7, 7]}\n"
    (tmp_path / "part.yaml").write_text(part, encoding="utf-8")
    use = SUM + "  - use: {file: part.yaml, with: {t: x}}\n    expect:\n"
    assert refused(use, path=tmp_path / "user.yaml")[0] == "used_part"
    (tmp_path / "part.yaml").write_text(part.replace("7, 7", "3, 3"), encoding="utf-8")
    found = proposal(use, path=tmp_path / "user.yaml")
    assert found.after == use + "      x: [3, 3]\n"
    assert propose(tmp_path / "part.yaml", part.encode()) is None


class StandIn:
    """Does as predicted, but for one change each time."""

    def __init__(self, *changes: Callable[[Trace], Trace]) -> None:
        self.changes = list(changes)

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Return the prediction with the next change."""
        del plan
        run = replace(predicted, backend="gloo", diagnoses=(), waits=(), open=())
        return self.changes.pop(0)(run)


def same(run: Trace) -> Trace:
    return run


def unable(run: Trace) -> Trace:
    message = f"{run.backend} cannot"
    raise UnsupportedError(message)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ((same, writing(0, 1, "x", [9, 9])), "runs_differ"),
        ((writing(0, 1, "x", [9, 9]), writing(0, 1, "x", [9, 9])), "reference_disagrees"),
        ((raising(0, 1, "other"), raising(0, 1, "other")), "reference_disagrees"),
        ((unable, unable), "cannot_run"),
    ],
)
def test_what_the_run_does_not_confirm_is_refused(
    changes: tuple[Callable[[Trace], Trace], ...], code: str
) -> None:
    found = proposal(SUM + "  - all_reduce: {tensor: x}\n")
    with pytest.raises(NotBlessedError) as caught:
        confirm(found, StandIn(*changes))
    assert [refusal.code for refusal in caught.value.refusals] == [code]


def test_what_every_run_confirms_is_accepted() -> None:
    found = proposal(SUM + "  - all_reduce: {tensor: x}\n")
    stand_in = StandIn(same, same, same)
    confirm(found, stand_in, runs=3)
    assert stand_in.changes == []


# ---------------------------------------------------------------------------- the command


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "sum.yaml").write_text(SUM + "  - all_reduce: {tensor: x}\n", encoding="utf-8")
    return tmp_path


def called(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["bless", *arguments])


def test_a_dry_run_prints_the_difference_and_writes_nothing(folder: Path) -> None:
    before = (folder / "sum.yaml").read_text(encoding="utf-8")
    result = called("--dry-run", ".")
    assert result.exit_code == 1
    assert "+      x: [3, 3]\n" in result.output
    assert (folder / "sum.yaml").read_text(encoding="utf-8") == before


def test_ci_blesses_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    result = called(".")
    assert result.exit_code == 2
    assert "this is CI" in result.output
    assert called("--dry-run", ".").exit_code == 1
    assert "expect" not in (folder / "sum.yaml").read_text(encoding="utf-8")


def test_a_review_needs_a_terminal(folder: Path) -> None:
    del folder
    result = called("--review", ".")
    assert result.exit_code == 2
    assert "not a terminal" in result.output


def test_with_an_invalid_file_nothing_is_written(folder: Path) -> None:
    (folder / "bad.yaml").write_text("world_size: 0\n", encoding="utf-8")
    result = called(".")
    assert result.exit_code == 2
    assert "bad.yaml:1:1" in result.output
    assert "expect" not in (folder / "sum.yaml").read_text(encoding="utf-8")


def test_nothing_to_bless_starts_no_process(folder: Path) -> None:
    text = SUM + "  - all_reduce: {tensor: x}\n    expect: {x: [3, 3]}\n"
    (folder / "sum.yaml").write_text(text, encoding="utf-8")
    result = called(".")
    assert (result.exit_code, result.output) == (0, "1 unchanged\n")


def test_a_refusal_names_the_line_and_exits_1(folder: Path) -> None:
    (folder / "sum.yaml").write_text(SUM + HANG, encoding="utf-8")
    result = called(".")
    assert result.exit_code == 1
    assert "refused    sum.yaml:8: the program hangs" in result.output
    assert "[program_hangs]" in result.output


def test_a_missing_file_and_a_case_exit_2(folder: Path) -> None:
    del folder
    assert called("none.yaml").exit_code == 2
    assert "files are blessed whole" in called("sum.yaml::sum").output
