"""Wrong programs of many ranks read well: the odd rank first, short lines, ranges in JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from sampling import sampled

from torch_scenarios.language import load
from torch_scenarios.limits import Limits
from torch_scenarios.pipeline.attempts import analyse, case_result
from torch_scenarios.pipeline.results import Outcome
from torch_scenarios.report.json import document, results_of, text
from torch_scenarios.report.text import details, write_details
from torch_scenarios.vocabulary import DIAGNOSES

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.pipeline.results import Result

#: characters of the longest line: a place in a file, two steps and a few ranks
LONGEST = 220
#: ranks of the generated worlds; a rank of the largest world has two digits more
RANKS = 512
#: worlds of programs whose analysis takes the square of their ranks
SMALLER: dict[str, int] = {}
MANY = Limits(max_ranks=2**15)

#: diagnosis -> steps that have it on n ranks, each rank in its own way where that can be
PROGRAMS = {
    "circular_wait": """\
  - send: {tensor: x, dst: (rank + 1) % n}
  - recv: {tensor: y, src: (rank - 1) % n}
""",
    "buffering_hazard": """\
  - send: {tensor: x, dst: rank ^ 1}
  - recv: {tensor: y, src: rank ^ 1}
""",
    "missing_participant": "  - {ranks: rank % 3 == 0, all_reduce: {tensor: x}}\n",
    "call_mismatch": """\
  - {ranks: rank % 2 == 0, all_reduce: {tensor: x}}
  - {ranks: rank % 2 == 1, barrier: {}}
""",
    "root_mismatch": "  - broadcast: {tensor: x, src: rank}\n",
    "op_mismatch": "  - all_reduce: {tensor: x, op: {0: max, else: sum}}\n",
    "dtype_mismatch": '  - all_reduce: {tensor: "astype(x, int64) if rank == 7 else x"}\n',
    "shape_mismatch": '  - compute: {z: "zeros(rank + 1)"}\n  - all_reduce: {tensor: z}\n',
    "tag_mismatch": """\
  - {ranks: rank % 2 == 0, send: {tensor: x, dst: rank + 1, tag: rank}}
  - {ranks: rank % 2 == 1, recv: {tensor: y, src: rank - 1, tag: rank}}
""",
    "unmatched_send": "  - {ranks: rank % 2 == 0, send: {tensor: x, dst: rank + 1}}\n",
    "unmatched_recv": "  - {ranks: rank % 2 == 0, recv: {tensor: x, src: rank + 1}}\n",
    "group_order": """\
  - {ranks: rank % 2 == 0, all_reduce: {tensor: x, group: first}}
  - {ranks: rank % 2 == 0, all_reduce: {tensor: x, group: second}}
  - {ranks: rank % 2 == 1, all_reduce: {tensor: x, group: second}}
  - {ranks: rank % 2 == 1, all_reduce: {tensor: x, group: first}}
""",
    "group_creation": '  - new_group: {name: g, group_ranks: "[rank % 5, n - 1]"}\n',
    "buffer_race": """\
  - {as: work, all_reduce: {tensor: x, async_op: true}}
  - compute: {x: x + 1}
  - wait: work
""",
    "missing_wait": "  - {as: work, all_reduce: {tensor: x, async_op: true}}\n",
    "undefined_read": "  - reduce: {tensor: x, dst: 0}\n    expect: {x: [1, 2]}\n",
    "invalid_argument": "  - {ranks: rank % 2 == 0, send: {tensor: x, dst: rank}}\n",
}
HEAD = """\
world_size: n
parameters: {n: RANKS}
groups: {first: "range(n)", second: "range(n)"}
tensors: {x: [1, 2], y: [0, 0]}
steps:
"""
#: diagnoses whose words are told by others' tests, with the reason
ELSEWHERE = {
    "message_race",  # 512 senders have more orders than are explored
    "double_wait",  # of one rank and one handle
    "not_equivalent",  # of a training strategy
}


def judged(steps: str, folder: Path, ranks: int = RANKS) -> Result:
    path = folder / "many.yaml"
    path.write_text(HEAD.replace("RANKS", str(ranks)) + steps, encoding="utf-8")
    (scenario,) = load(path, limits=MANY)
    return case_result(scenario, analyse(scenario, MANY).verdict, 0.0)


def lines_of(result: Result) -> list[str]:
    return [line.printable for line in (*details(result), *write_details(result.verdict))]


def test_every_diagnosis_is_generated() -> None:
    missing = {*DIAGNOSES} - {*PROGRAMS, *ELSEWHERE}
    assert not missing, "give each a program of many ranks that has it, a row of PROGRAMS"


@pytest.mark.parametrize("name", sampled(list(PROGRAMS), 4))
def test_no_line_is_long_however_many_ranks_there_are(name: str, tmp_path: Path) -> None:
    result = judged(PROGRAMS[name], tmp_path, SMALLER.get(name, RANKS))
    predicted = result.verdict.predicted
    assert result.verdict.status == "FAILED"
    assert predicted is not None
    known = {each for found in predicted.diagnoses for each in (found.name, *found.also)}
    assert name in known | {finding.code for finding in result.verdict.findings}
    for line in lines_of(result):
        for clause in line.split("; "):
            assert len(clause) <= LONGEST, clause
    for problem in document(Outcome(results=(result,)))["results"][0]["problems"]:
        assert all(len(clause) <= LONGEST for clause in problem["message"].split("; "))
        assert len(json.dumps(problem["ranks"])) <= 20 * LONGEST


@pytest.mark.parametrize("name", ["shape_mismatch", "dtype_mismatch", "op_mismatch"])
def test_a_mismatch_is_told_in_one_short_line(name: str, tmp_path: Path) -> None:
    result = judged(PROGRAMS[name], tmp_path)
    assert max(map(len, lines_of(result))) <= LONGEST


def test_the_odd_rank_is_named_first(tmp_path: Path) -> None:
    result = judged(PROGRAMS["op_mismatch"].replace("{0:", "{300:"), tmp_path)
    assert result.verdict.predicted is not None
    (found,) = result.verdict.predicted.diagnoses
    told = found.prose.partition("different op: ")[2]
    assert told.startswith("rank 300 passes max")
    assert "; ranks 0, 1, 2, 3, 4, 5, 6 and 504 more pass sum" in told
    assert found.odd == (300,)


def test_values_of_many_ranks_are_counted(tmp_path: Path) -> None:
    result = judged(PROGRAMS["shape_mismatch"], tmp_path)
    assert result.verdict.predicted is not None
    prose = result.verdict.predicted.diagnoses[0].prose
    assert prose.endswith("and other values on 509 more ranks")


def test_json_has_many_ranks_as_ranges_and_reads_them_back(tmp_path: Path) -> None:
    result = judged(PROGRAMS["missing_participant"], tmp_path)
    outcome = Outcome(results=(result,))
    found = document(outcome)["results"][0]["predicted"]
    assert found["explanations"][0]["ranks"] == [[0, 511]]
    assert found["blocked"]["0"] == "all_reduce"
    path = tmp_path / "found.json"
    path.write_text(text(outcome), encoding="utf-8")
    read = results_of(path).results[0].verdict.predicted
    assert read is not None
    assert read.diagnoses[0].ranks == tuple(range(512))
    assert [rank.rank for rank in read.ranks] == list(range(0, 512, 3))


def test_json_has_who_is_blocked_in_one_step_as_a_range(tmp_path: Path) -> None:
    result = judged("  - {ranks: rank > 99, all_reduce: {tensor: x}}\n", tmp_path)
    found = document(Outcome(results=(result,)))["results"][0]["predicted"]
    assert found["blocked"] == {"100-511": "all_reduce"}


def test_a_small_world_has_its_ranks_one_by_one(tmp_path: Path) -> None:
    result = judged(PROGRAMS["missing_participant"], tmp_path, ranks=8)
    found = document(Outcome(results=(result,)))["results"][0]["predicted"]
    assert found["blocked"] == {"0": "all_reduce", "3": "all_reduce", "6": "all_reduce"}
    assert found["explanations"][0]["ranks"] == list(range(8))


def test_json_explains_faults_of_one_kind_at_one_step_once(tmp_path: Path) -> None:
    text_of_send = '  - {isend: {tensor: x, dst: "(rank + 1) % world_size"}}\n'
    result = judged(text_of_send, tmp_path)
    found = document(Outcome(results=(result,)))["results"][0]["predicted"]
    assert sorted(found["diagnoses"]) == ["missing_wait", "unmatched_send"]
    told = {each["diagnosis"]: each for each in found["explanations"]}
    assert len(told) == len(found["explanations"])
    assert (told["unmatched_send"]["times"], told["unmatched_send"]["ranks"]) == (512, [[0, 511]])
    assert len(json.dumps(found)) < 20 * LONGEST
    few = document(Outcome(results=(judged(text_of_send, tmp_path, ranks=3),)))
    entries = few["results"][0]["predicted"]["explanations"]
    assert [each["times"] for each in entries] == [1] * len(entries)
