"""Six kinds of work in flight, each beside 36 operations: which of the 216 pairs are buffer races.

The truth is a rule of this file and no part of the implementation: each side says what rank 0 does
with the elements of `w` that it is given, and a pair races if both use the same elements and one of
them writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from sampling import sampled
from traces import run_together

import torch_scenarios
from torch_scenarios.limits import DEFAULT
from torch_scenarios.reference.simulate import walk
from torch_scenarios.reference.vector import CohortError

if TYPE_CHECKING:
    from pathlib import Path

    from torch_scenarios.model.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Steps in which rank 0 `reads` or `writes` two elements of `w`, called `IT` in the text."""

    name: str
    text: str
    reads: bool = False
    writes: bool = False
    waits: bool = False


HEAD = """\
world_size: 2
tensors:
  w: [1, 2, 3, 4]
  f: [5, 6]
  o: [7, 8]
  p: [7, 8]
  q: [7, 8]
  one: [9]
  four: [0, 0, 0, 0]
  five: [0, 0, 0, 0]
steps:
"""

IN_FLIGHT = (
    Use(
        name="isend",
        text="- {ranks: 0, isend: {tensor: IT, dst: 1, tag: 9}, as: h}\n"
        "- {ranks: 1, irecv: {tensor: f, src: 0, tag: 9}, as: h}\n",
        reads=True,
    ),
    Use(
        name="irecv",
        text="- {ranks: 0, irecv: {tensor: IT, src: 1, tag: 9}, as: h}\n"
        "- {ranks: 1, isend: {tensor: f, dst: 0, tag: 9}, as: h}\n",
        writes=True,
    ),
    Use(
        name="batch_that_sends",
        text="- {ranks: 0, batch_isend_irecv: "
        "[{op: isend, tensor: IT, peer: 1, tag: 9}], as: h}\n"
        "- {ranks: 1, irecv: {tensor: f, src: 0, tag: 9}, as: h}\n",
        reads=True,
    ),
    Use(
        name="batch_that_receives",
        text="- {ranks: 0, batch_isend_irecv: "
        "[{op: irecv, tensor: IT, peer: 1, tag: 9}], as: h}\n"
        "- {ranks: 1, isend: {tensor: f, dst: 0, tag: 9}, as: h}\n",
        writes=True,
    ),
    Use(
        name="all_reduce",
        text="- {all_reduce: {tensor: {0: IT, 1: f}, async_op: true}, as: h}\n",
        reads=True,
        writes=True,
    ),
    Use(
        name="all_gather_single",
        text="- {all_gather_single: {output: five, input: {0: IT, 1: f}, async_op: true}, as: h}\n",
        reads=True,
    ),
)

OPERATIONS = (
    Use(
        name="broadcast_source", text="- {broadcast: {tensor: {0: IT, 1: o}, src: 0}}\n", reads=True
    ),
    Use(
        name="broadcast_leaf", text="- {broadcast: {tensor: {0: IT, 1: o}, src: 1}}\n", writes=True
    ),
    Use(
        name="all_reduce",
        text="- {all_reduce: {tensor: {0: IT, 1: o}}}\n",
        reads=True,
        writes=True,
    ),
    Use(
        name="reduce_destination",
        text="- {reduce: {tensor: {0: IT, 1: o}, dst: 0}}\n",
        reads=True,
        writes=True,
    ),
    # a backend may leave anything behind there
    Use(
        name="reduce_off_the_destination",
        text="- {reduce: {tensor: {0: IT, 1: o}, dst: 1}}\n",
        reads=True,
        writes=True,
    ),
    Use(
        name="all_gather_input",
        text="- {all_gather: {tensor_list: [o, p], tensor: {0: IT, 1: q}}}\n",
        reads=True,
    ),
    Use(
        name="all_gather_output",
        text="- {all_gather: {tensor_list: {0: [IT, o], 1: [o, p]}, tensor: {0: p, 1: q}}}\n",
        writes=True,
    ),
    Use(
        name="all_gather_single_input",
        text="- {all_gather_single: {output: four, input: {0: IT, 1: o}}}\n",
        reads=True,
    ),
    Use(
        name="all_gather_single_output",
        text="- {all_gather_single: {output: {0: IT, 1: o}, input: one}}\n",
        writes=True,
    ),
    Use(
        name="gather_input",
        text="- {gather: {tensor: {0: IT, 1: q}, gather_list: {1: [o, p]}, dst: 1}}\n",
        reads=True,
    ),
    Use(
        name="gather_output",
        text="- {gather: {tensor: {0: p, 1: o}, gather_list: {0: [IT, o]}, dst: 0}}\n",
        writes=True,
    ),
    Use(
        name="scatter_output",
        text="- {scatter: {tensor: {0: IT, 1: o}, scatter_list: {1: [p, p]}, src: 1}}\n",
        writes=True,
    ),
    Use(
        name="scatter_input",
        text="- {scatter: {tensor: o, scatter_list: {0: [IT, p]}, src: 0}}\n",
        reads=True,
    ),
    Use(
        name="reduce_scatter_output",
        text="- {reduce_scatter: {output: {0: IT, 1: o}, input_list: [p, p]}}\n",
        writes=True,
    ),
    Use(
        name="reduce_scatter_input",
        text="- {reduce_scatter: {output: o, input_list: {0: [IT, p], 1: [p, p]}}}\n",
        reads=True,
    ),
    Use(
        name="reduce_scatter_single_output",
        text="- {reduce_scatter_single: {output: {0: IT, 1: o}, input: four}}\n",
        writes=True,
    ),
    Use(
        name="reduce_scatter_single_input",
        text="- {reduce_scatter_single: {output: one, input: {0: IT, 1: o}}}\n",
        reads=True,
    ),
    Use(
        name="all_to_all_output",
        text="- {all_to_all: {output_tensor_list: {0: [IT, o], 1: [o, 'w[:2]']}, "
        "input_tensor_list: [p, p]}}\n",
        writes=True,
    ),
    Use(
        name="all_to_all_input",
        text="- {all_to_all: {output_tensor_list: [o, 'four[:2]'], "
        "input_tensor_list: {0: [IT, p], 1: [p, p]}}}\n",
        reads=True,
    ),
    Use(
        name="all_to_all_single_output",
        text="- {all_to_all_single: {output: {0: IT, 1: o}, input: p}}\n",
        writes=True,
    ),
    Use(
        name="all_to_all_single_input",
        text="- {all_to_all_single: {output: o, input: {0: IT, 1: p}}}\n",
        reads=True,
    ),
    Use(
        name="all_reduce_coalesced",
        text="- {all_reduce_coalesced: {tensors: {0: [p, IT], 1: [p, o]}}}\n",
        reads=True,
        writes=True,
    ),
    Use(
        name="all_gather_coalesced_input",
        text="- {all_gather_coalesced: {output_tensor_lists: [[o], [p]], "
        "input_tensor_list: {0: [IT], 1: [q]}}}\n",
        reads=True,
    ),
    Use(
        name="all_gather_coalesced_output",
        text="- {all_gather_coalesced: {output_tensor_lists: {0: [[IT], [p]], 1: [[o], [p]]}, "
        "input_tensor_list: ['four[:2]']}}\n",
        writes=True,
    ),
    Use(
        name="send",
        text="- {ranks: 0, send: {tensor: IT, dst: 1}}\n- {ranks: 1, recv: {tensor: o, src: 0}}\n",
        reads=True,
    ),
    Use(
        name="recv",
        text="- {ranks: 0, recv: {tensor: IT, src: 1}}\n- {ranks: 1, send: {tensor: o, dst: 0}}\n",
        writes=True,
    ),
    Use(
        name="isend",
        text="- {ranks: 0, isend: {tensor: IT, dst: 1}, as: g}\n"
        "- {ranks: 1, recv: {tensor: o, src: 0}}\n",
        reads=True,
        waits=True,
    ),
    Use(
        name="irecv",
        text="- {ranks: 0, irecv: {tensor: IT, src: 1}, as: g}\n"
        "- {ranks: 1, send: {tensor: o, dst: 0}}\n",
        writes=True,
        waits=True,
    ),
    Use(
        name="batch_that_sends",
        text="- {batch_isend_irecv: [{op: isend, tensor: {0: IT, 1: p}, peer: 1 - rank}, "
        "{op: irecv, tensor: o, peer: 1 - rank}], as: g}\n",
        reads=True,
        waits=True,
    ),
    Use(
        name="batch_that_receives",
        text="- {batch_isend_irecv: [{op: isend, tensor: p, peer: 1 - rank}, "
        "{op: irecv, tensor: {0: IT, 1: o}, peer: 1 - rank}], as: g}\n",
        writes=True,
        waits=True,
    ),
    Use(name="compute_reads", text="- {ranks: 0, compute: {v: 'IT + 1'}}\n", reads=True),
    Use(name="compute_writes", text="- {ranks: 0, compute: {INTO: 'zeros(4)'}}\n", writes=True),
    Use(name="selector", text="- {ranks: 'sum(IT) > -9', barrier: {}}\n", reads=True),
    Use(name="expectation", text="- {ranks: 0, expect: {'sum(IT) > -9': true}}\n", reads=True),
    Use(name="barrier", text="- {barrier: {}}\n"),
    Use(name="sleep", text="- {sleep: 0.1s}\n"),
)


def plan_of(flight: Use, operation: Use, folder: Path, *, apart: bool) -> Plan:
    """Return the program of a pair; `apart` gives the operation the other half of `w`."""
    theirs, into = ("'w[2:]'", "v") if apart else ("'w[:2]'", "w")
    used = operation.text.replace("INTO", into)
    for quoted in ("'sum(IT) > -9'", "'IT + 1'"):
        used = used.replace(quoted, quoted.replace("IT", theirs.strip("'")))
    text = HEAD + flight.text.replace("IT", "'w[:2]'") + used.replace("IT", theirs)
    text += "- {wait: [h, g]}\n" if operation.waits else "- {wait: h}\n"
    path = folder / "pair.yaml"
    path.write_text(text, encoding="utf-8")
    (scenario,) = torch_scenarios.load(path)
    return torch_scenarios.plan(scenario)


def found_in(plan: Plan) -> set[str]:
    """Return the diagnoses, of both engines where both know the program."""
    names = {diagnosis.name for diagnosis in walk(plan, DEFAULT).diagnoses}
    try:
        trace = run_together(plan, DEFAULT)
    except CohortError:
        return names
    assert {diagnosis.name for diagnosis in trace.diagnoses} == names
    return names


def test_there_are_as_many_pairs_as_are_promised() -> None:
    assert len({flight.name for flight in IN_FLIGHT}) == 6
    assert len({operation.name for operation in OPERATIONS}) == 36


@pytest.mark.parametrize("operation", sampled(OPERATIONS, 4), ids=lambda each: str(each.name))
@pytest.mark.parametrize("flight", IN_FLIGHT, ids=lambda each: str(each.name))
def test_a_pair_races_if_both_use_the_same_and_one_writes(
    tmp_path: Path, flight: Use, operation: Use
) -> None:
    races = (flight.writes and (operation.reads or operation.writes)) or (
        flight.reads and operation.writes
    )
    assert found_in(plan_of(flight, operation, tmp_path, apart=False)) == (
        {"buffer_race"} if races else set()
    )
    assert found_in(plan_of(flight, operation, tmp_path, apart=True)) == set()
