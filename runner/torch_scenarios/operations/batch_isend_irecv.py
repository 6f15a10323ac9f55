"""`batch_isend_irecv`: starts several sends and receives as one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from torch_scenarios.expressions.params import GROUP, TAG, Param, tensor
from torch_scenarios.expressions.values import Form, ListForm, PerRank, Record
from torch_scenarios.operations.base import (
    VALUE,
    Caller,
    Entry,
    Message,
    PointToPoint,
    Refusal,
    Trial,
)
from torch_scenarios.operations.checks import refuse_argument, refuse_none
from torch_scenarios.operations.send import name_peer, police_peer, refuse_peer, world_rank

FIELDS = (
    Param(
        name="op",
        kind="word",
        words=("isend", "irecv"),
        required=True,
        description="Which of the two it is.",
    ),
    tensor("tensor", "What is sent, or where the message is stored."),
    Param(name="peer", kind="rank", description="The other side. A global rank."),
    GROUP,
    TAG,
    Param(
        name="group_peer",
        kind="group_rank",
        description="The other side. A rank inside the group, in place of `peer`.",
    ),
)
OPS = "p2p_op_list"


class BatchISendIRecv(PointToPoint):
    """Start several `isend` and `irecv` together, in any order; the handle completes them all."""

    name = "batch_isend_irecv"
    asynchronous = True
    params = (
        Param(
            name=OPS,
            kind="p2p_ops",
            required=True,
            fields=FIELDS,
            description=(
                "The operations, each with the arguments of torch's P2POp: `op` (isend or irecv), "
                "`tensor`, `peer` or `group_peer`, `tag`, `group`; all in one group. An item may "
                "select `ranks`, and repeat with `for`."
            ),
        ),
    )
    trial = Trial(
        {"a": VALUE, "b": "zeros(2)"},
        {
            OPS: [
                {"op": "isend", "tensor": "a", "peer": "1 - rank"},
                {"op": "irecv", "tensor": "b", "peer": "1 - rank"},
            ]
        },
    )
    example = """\
world_size: 2
tensors:
  mine: "full(2, rank)"
  theirs: [-1, -1]
steps:
  - batch_isend_irecv:
      p2p_op_list:
        - {op: isend, tensor: mine, peer: 1 - rank}
        - {op: irecv, tensor: theirs, peer: 1 - rank}
    as: exchange
  - wait: exchange
    expect:
      theirs: {0: [1, 1], 1: [0, 0]}
"""

    def group_of(self, caller: Caller, given: Mapping[str, Form]) -> str | None:
        """The group of the first operation; all must use the same."""
        for item in _items(caller, given):
            name: str | None = caller.evaluate(item.get("group"))
            return name
        return None

    def concerns(self, caller: Caller, given: Mapping[str, Form]) -> bool:
        """A rank for which no item is left does not call."""
        if all(item.ranks is None and not item.loops for item in _records(caller, given)):
            return True
        return any(True for _ in _items(caller, given))

    def evaluate(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, Any]:
        """Evaluate each item into a dict with every field of P2POp."""
        return {
            OPS: [
                {
                    field.name: caller.evaluate_argument(field, item.get(field.name))
                    for field in FIELDS
                }
                for item in _items(caller, given)
            ]
        }

    def roots(self, caller: Caller, given: Mapping[str, Form]) -> dict[str, frozenset[str]]:
        """What is sent and what is stored into, apart: under `isend` and under `irecv`."""
        found: dict[str, frozenset[str]] = {"isend": frozenset(), "irecv": frozenset()}
        for item in _items(caller, given):
            word = str(caller.evaluate(item.get("op")))
            found[word] = found.get(word, frozenset()) | caller.roots(item.get("tensor"))
        return found

    def read(self, entry: Entry, roots: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """What the sends send."""
        return roots.get("isend", frozenset())

    def find_written(self, entry: Entry, roots: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """What the receives store into."""
        return roots.get("irecv", frozenset())

    def label(self, entry: Entry) -> str:
        """`batch_isend_irecv (isend to 1, irecv from 1)`."""
        parts = [
            f"isend to {name_peer(_peer(entry, item))}"
            if item["op"] == "isend"
            else f"irecv from {name_peer(_peer(entry, item))}"
            for item in entry[OPS]
        ]
        return f"{self.name} ({', '.join(parts)})"

    def looks_up(self, entry: Entry) -> bool:
        """A P2POp keeps its peer both ways."""
        return True

    def refuse(self, entry: Entry) -> Refusal | None:
        """Refuse an empty list, several groups, and what P2POp refuses in an item."""
        items = entry[OPS]
        if not items:
            return refuse_argument(f"{OPS} is empty")
        for item in items:
            refusal = refuse_peer(entry, "peer", item["peer"], item["group_peer"], anyone=False)
            if refusal is not None:
                return refusal
            if item["tensor"] is None:
                return refuse_none(OPS, "a tensor")
            if item["tag"] < 0:
                return refuse_argument("a tag is negative")
        if len({item["group"] or "world" for item in items}) > 1:
            return refuse_argument("all operations need the same group")
        return None

    def messages(self, entry: Entry) -> tuple[Message, ...]:
        """One message for each item, in order."""
        return tuple(_message(entry, item) for item in entry[OPS])

    def bound(self, dist: ModuleType, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Make torch's P2POps; the group handle stands in `group` of each item."""
        operations = []
        # `dist.isend` and `dist.irecv` are the words of the list by name; P2POp takes the function
        # itself.
        for item in arguments[OPS]:
            given = {name: value for name, value in item.items() if value is not None}
            police_peer(dist, given, "peer")
            operations.append(dist.P2POp(getattr(dist, given.pop("op")), **given))
        return partial(dist.batch_isend_irecv, operations)


def _records(caller: Caller, given: Mapping[str, Form]) -> list[Record]:
    """Return the items of the list that this rank has.

    `p2p_op_list` may be another list by rank.
    """
    form = given[OPS]
    chosen = caller.choose(form) if isinstance(form, PerRank) else form
    items = chosen.items if isinstance(chosen, ListForm) else ()
    return [item for item in items if isinstance(item, Record)]


def _items(caller: Caller, given: Mapping[str, Form]) -> Iterator[Mapping[str, Form]]:
    """Yield the items that are there on this rank, each while its variables are known."""
    return caller.items(_records(caller, given))


def _peer(entry: Entry, item: Mapping[str, Any]) -> int | None:
    return world_rank(entry, item["peer"], item["group_peer"])


def _message(entry: Entry, item: Mapping[str, Any]) -> Message:
    peer, tag = _peer(entry, item), item["tag"]
    if item["op"] == "isend":
        return Message(sends=True, peer=peer, tag=tag, payload=item["tensor"])
    return Message(sends=False, peer=peer, tag=tag, buffer=item["tensor"])
