"""What a case needs of a backend: derived from what its ranks call, stated, refuted, listed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from torch_scenarios.cli import cli
from torch_scenarios.errors import ScenarioError
from torch_scenarios.execution.lacks import read_lacks
from torch_scenarios.language import load
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.needs import CAPABILITIES, LEVELS, Lacks, Needs
from torch_scenarios.model.plan import Plan
from torch_scenarios.model.trace import Trace
from torch_scenarios.model.traits import TRAITS
from torch_scenarios.pipeline.attempts import analyse, execute, find_lacks
from torch_scenarios.reference import derive

TENSORS = 'world_size: 2\ntensors: {x: "full(2, rank + 1)", y: [0, 0]}\n'
PAIR = """\
  - ranks: 0
    send: {tensor: x, dst: 1, tag: 0}
  - ranks: 1
    recv: {tensor: y, src: 0, tag: 0}
"""

#: a word, a program that needs it, and what else that needs; then one that is like it and does not
DERIVED = {
    "p2p": (PAIR, "p2p", "  - broadcast: {tensor: x, src: 0}\n", ""),
    "tags": (PAIR.replace("tag: 0", "tag: 7"), "tags p2p", PAIR, "p2p"),
    "any_source": (PAIR.replace("src: 0, ", ""), "any_source p2p", PAIR, "p2p"),
    "async": (
        "  - all_reduce: {tensor: x, async_op: true}\n    as: h\n  - wait: h\n",
        "async",
        "  - all_reduce: {tensor: x, async_op: false}\n",
        "",
    ),
    "batch": (
        (
            "  - batch_isend_irecv:\n      p2p_op_list:\n"
            "        - {op: isend, tensor: x, peer: 1 - rank}\n"
            "        - {op: irecv, tensor: y, peer: 1 - rank}\n    as: h\n  - wait: h\n"
        ),
        "async batch p2p",
        PAIR,
        "p2p",
    ),
    "crossing_messages": (
        (
            "  - isend: {tensor: x, dst: 1 - rank}\n    as: h\n"
            "  - recv: {tensor: y, src: 1 - rank}\n  - wait: h\n"
        ),
        "async crossing_messages p2p",
        (
            '  - ranks: "rank == 0"\n    isend: {tensor: x, dst: 1}\n    as: h\n'
            "  - ranks: 1\n    recv: {tensor: y, src: 0}\n  - wait: h\n"
        ),
        "async p2p",
    ),
    "coalesced": (
        '  - all_reduce_coalesced: {tensors: "[x, y]"}\n',
        "coalesced",
        "  - all_reduce: {tensor: x}\n",
        "",
    ),
    "avg": (
        "  - all_reduce: {tensor: x, op: avg}\n",
        "avg",
        "  - all_reduce: {tensor: x, op: sum}\n",
        "",
    ),
    "premul_sum": (
        "  - all_reduce: {tensor: x, op: {premul_sum: 0.5}}\n",
        "premul_sum",
        "  - all_reduce: {tensor: x, op: product}\n",
        "",
    ),
    "bfloat16": (
        '  - compute: {z: "astype(x, bfloat16)"}\n  - all_reduce: {tensor: z}\n',
        "bfloat16",
        '  - compute: {z: "astype(x, bfloat16)"}\n  - all_reduce: {tensor: x}\n',
        "",
    ),
    "float8": (
        '  - compute: {z: "astype(x, float8_e5m2)"}\n  - broadcast: {tensor: z, src: 0}\n',
        "float8",
        '  - compute: {z: "astype(x, float64)"}\n  - broadcast: {tensor: z, src: 0}\n',
        "",
    ),
    "complex": (
        '  - compute: {z: "astype(x, complex64)"}\n  - broadcast: {tensor: z, src: 0}\n',
        "complex",
        "  - broadcast: {tensor: x, src: 0}\n",
        "",
    ),
    "uneven_split": (
        (
            "  - compute: {out: [0, 0, 0], mine: [1, 2, 3]}\n"
            "  - all_to_all_single: {output: out, input: mine,"
            ' input_split_sizes: {0: [1, 2], 1: [2, 1]}, output_split_sizes: "[1, 2] if rank == 0'
            ' else [2, 1]"}\n'
        ),
        "uneven_split",
        "  - all_to_all_single: {output: y, input: x, input_split_sizes: [1, 1]}\n",
        "",
    ),
    "monitored_barrier": (
        "  - monitored_barrier: {}\n",
        "monitored_barrier",
        "  - barrier: {}",
        "",
    ),
    "subgroups": (
        "  - new_group: {name: g, group_ranks: [0, 1]}\n",
        "subgroups",
        "  - barrier: {group: world}\n",
        "",
    ),
    "timeouts": (
        (
            "  - ranks: 0\n    all_reduce: {tensor: x}\n    expect: {raises: timeout}\n"
            "expect: {diagnosis: missing_participant}\n"
        ),
        "timeouts",
        "  - all_reduce: {tensor: x}\n",
        "",
    ),
    "abort": (
        (
            "  - ranks: 0\n    all_reduce: {tensor: x}\n"
            "expect: {outcome: deadlock, diagnosis: missing_participant}\n"
        ),
        "abort",
        "  - ranks: [0]\n    all_reduce: {tensor: x, group: one}\ngroups: {one: [0]}\n",
        "subgroups",
    ),
    "objects": (
        (
            "  - broadcast_object_list: {object_list: words, src: 0}\n"
            "objects: {words: [{expr: rank}, two]}\n"
        ),
        "objects",
        "  - broadcast: {tensor: x, src: 0}\nobjects: {words: [1, two]}\n",
        "",
    ),
    "rpc": (
        "  - {ranks: 0, rpc_sync: {to: 1, func: f}}\nfunctions: {f: {returns: x}}\n",
        "rpc",
        "  - {ranks: 0, compute: {y: x}}\n",
        "",
    ),
}
#: the word that another test shows: of one dtype like another
ELSEWHERE = {"float16"}


def found(folder: Path, program: str) -> Needs:
    path = folder / "it.yaml"
    path.write_text(program, encoding="utf-8")
    (scenario,) = load(path)
    analysis = analyse(scenario)
    assert analysis.verdict.status == "PASSED", analysis.verdict
    assert analysis.plan is not None
    assert analysis.predicted is not None
    return derive(analysis.plan, analysis.predicted)


def listed(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["list", "--needs", *options, str(folder)])


@pytest.mark.parametrize("word", DERIVED)
def test_a_program_needs_what_its_ranks_use(tmp_path: Path, word: str) -> None:
    program, needed, like, without = DERIVED[word]
    assert found(tmp_path, f"{TENSORS}steps:\n{program}").words == tuple(needed.split())
    assert found(tmp_path, f"{TENSORS}steps:\n{like}").words == tuple(without.split())


def test_every_word_has_a_program() -> None:
    assert DERIVED.keys() | ELSEWHERE == CAPABILITIES.keys()


def test_every_word_has_a_level_that_a_certificate_has() -> None:
    levels = {each.level for each in CAPABILITIES.values()} - {None}
    assert levels <= set(LEVELS)
    assert set(LEVELS) - levels == set()


def test_what_known_backends_lack_are_words() -> None:
    assert all(traits.lacks <= CAPABILITIES.keys() for traits in TRAITS.values())


def test_each_dtype_of_a_matrix_is_its_own_case(tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(
        "world_size: 2\nmatrix: {kind: [float16, bfloat16, float32]}\n"
        "tensors: {x: {dtype: kind, value: [1]}}\nsteps: [{all_reduce: {tensor: x}}]\n"
    )
    lines = listed(tmp_path).output.splitlines()
    assert [line.partition("  ")[2] for line in lines] == [
        "needs float16",
        "needs bfloat16",
        "needs nothing",
    ]


def test_a_step_that_no_rank_takes_needs_nothing(tmp_path: Path) -> None:
    program = f"{TENSORS}steps:\n{PAIR.replace('ranks: 0', 'ranks: rank > 4')}"
    program = program.replace("ranks: 1\n", "ranks: rank > 4\n")
    assert found(tmp_path, f"{program}  - barrier: {{}}\n").words == ()


def test_a_program_of_many_ranks_that_cohorts_take_needs_the_same(tmp_path: Path) -> None:
    program = f"{TENSORS}steps:\n{DERIVED['crossing_messages'][0]}"
    for here, there in (("world_size: 2", "world_size: 64"), ("1 - rank", '"63 - rank"')):
        program = program.replace(here, there)
    assert found(tmp_path, program).words == ("async", "crossing_messages", "p2p")


def test_what_is_stated_is_added(tmp_path: Path) -> None:
    needs = found(tmp_path, f"{TENSORS}needs: [abort, p2p, timeouts]\nsteps:\n{PAIR}")
    assert needs.words == ("p2p", "timeouts", "abort")
    assert needs.steps["abort"] == frozenset()
    assert not needs.refuted


def test_what_the_program_does_not_use_is_a_warning_and_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "it.yaml"
    path.write_text(f"{TENSORS}needs: [bfloat16, p2p]\nsteps:\n{PAIR}")
    checked = CliRunner().invoke(cli, ["check", str(path)])
    assert checked.exit_code == 0
    assert "warning[need_refuted]: `needs` names `bfloat16`" in checked.output
    assert f"{path}:3:9" in checked.output
    assert CliRunner().invoke(cli, ["check", "--strict", str(path)]).exit_code == 1
    assert listed(tmp_path).output == f"{path}::it  needs p2p\n"


def test_nothing_is_refuted_of_a_program_that_goes_on_beyond_what_is_written(
    tmp_path: Path,
) -> None:
    program = f"{TENSORS}needs: [bfloat16]\ntruncated: all\nsteps:\n  - barrier: {{}}\n"
    assert found(tmp_path, program).words == ("bfloat16",)


def test_a_misspelt_word_is_invalid_with_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(f"{TENSORS}needs: [any_sorce]\nsteps:\n{PAIR}")
    refused = CliRunner().invoke(cli, ["check", str(tmp_path)])
    assert refused.exit_code == 2
    assert "any_source" in refused.output


@pytest.mark.parametrize("stated", ["[]", "[p2p, p2p]", "{p2p: true}", "p2p"])
def test_what_is_no_list_of_words_is_invalid(tmp_path: Path, stated: str) -> None:
    (tmp_path / "it.yaml").write_text(f"{TENSORS}needs: {stated}\nsteps:\n{PAIR}")
    assert CliRunner().invoke(cli, ["check", str(tmp_path)]).exit_code == 2


def test_the_list_is_json_too(tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(f"{TENSORS}steps:\n{PAIR}")
    (entry,) = json.loads(listed(tmp_path, "--json", "-").output)
    assert entry["needs"] == ["p2p"]
    plain = CliRunner().invoke(cli, ["list", "--json", "-", str(tmp_path)])
    assert "needs" not in json.loads(plain.output)[0]


def test_a_known_backend_lacks_words_but_where_its_section_says_what_it_does(
    tmp_path: Path,
) -> None:
    crossing = f"{TENSORS}steps:\n{DERIVED['crossing_messages'][0]}"
    stated = f"{crossing}expect: {{nccl: {{outcome: deadlock}}}}\n"
    in_order = f"{TENSORS}steps:\n{PAIR.replace('tag: 0', 'tag: 7')}"
    lacked = []
    for program in (crossing, stated, in_order):
        path = tmp_path / "it.yaml"
        path.write_text(program)
        (scenario,) = load(path)
        analysis = analyse(scenario, backend="nccl")
        assert analysis.predicted is not None
        lacked.append(find_lacks("nccl", scenario, analysis.predicted))
    assert lacked == [("crossing_messages",), (), ()]


def test_a_plugin_declares_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text, words in (
        ("plain", 'LACKS = ["tags", "avg"]', ("avg", "tags")),
        ("frozen", 'LACKS: frozenset[str] = frozenset({"rpc"})', ("rpc",)),
        ("silent", "import torch", ()),
    ):
        Path(f"{name}_plugin.py").write_text(f"{text}\nraise SystemExit('it is not run')\n")
        assert read_lacks(f"{name}_plugin") == words
    assert read_lacks("no_such_plugin") == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('LACKS = ["tagz"]', "did you mean `tags`?"),
        ("LACKS = [str(1)]", "it is read, and not run"),
        ('LACKS = "tags"', "is not a list of words"),
    ],
)
def test_a_plugin_that_declares_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    read_lacks.cache_clear()
    Path("wrong_plugin.py").write_text(text)
    with pytest.raises(ScenarioError):
        read_lacks("wrong_plugin")
    Path("it.yaml").write_text(f"{TENSORS}steps:\n{PAIR}")
    refused = CliRunner().invoke(
        cli, ["run", "--plugin", "wrong_plugin", "--backend", "gloo", "it.yaml"]
    )
    assert refused.exit_code == 2
    assert words in refused.output


class LackingExecutor:
    """Runs as predicted, on a backend that lacks something."""

    lacks = Lacks(backends=("nccl",))

    def run(self, plan: Plan, predicted: Trace) -> Trace:
        """Return what is predicted."""
        del plan
        return predicted


def test_the_bounds_of_an_analysis_hold_where_a_run_asks_what_its_backend_lacks(
    tmp_path: Path,
) -> None:
    path = tmp_path / "case.yaml"
    turns = '  - for: {i: "range(60)"}\n    steps:\n      - all_reduce: {tensor: x}\n'
    path.write_text(f"{TENSORS}steps:\n{turns}", encoding="utf-8")
    analysis = analyse(load(path)[0])
    assert execute(analysis, LackingExecutor()).verdict.status == "PASSED"
    narrow = replace(analysis, limits=replace(DEFAULT, max_turns=10))
    (problem,) = execute(narrow, LackingExecutor()).verdict.problems
    assert problem.code == "too_many_turns"
