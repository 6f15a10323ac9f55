"""Chakra's execution traces (MLCommons, schema 0.0.4): a program for simulators that replay them.

A file for each rank, and one with the groups, as ASTRA-sim reads them. A file is a row of messages
of Protocol Buffers, each after its length: the metadata, then a node for each message, collective
and pause. A node depends on what its rank has returned from before it; a `wait` is such an edge::

    isend a; isend b; wait a; all_reduce        a <-- all_reduce        b
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from torch_scenarios.errors import Problem, ScenarioError
from torch_scenarios.model.traffic import Enter, Finish, Meet, Pause, Traffic, TrafficRow
from torch_scenarios.operations import kind_of

#: the version of the schema that is written
VERSION = "0.0.4"

#: kinds of nodes (`NodeType`)
_COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 4, 5, 6, 7

#: kinds of collectives (`CollectiveCommType`), by what the operation is
COLLECTIVES = {
    "all_reduce": 0,
    "reduce": 1,
    "all_gather": 2,
    "gather": 3,
    "scatter": 4,
    "broadcast": 5,
    "all_to_all": 6,
    "reduce_scatter": 7,
    "barrier": 9,
}

#: collectives of which Chakra counts what one rank puts in, and nccl-tests what all of them do
_OF_ONE_RANK = frozenset({"all_gather", "gather"})


_Attributes = dict[str, int | str]


class ChakraTraces(NamedTuple):
    """A program as traces: the file of each rank, and that of the groups, without the world."""

    ranks: list[bytes]
    groups: str


class _Node(NamedTuple):
    name: str
    kind: int
    depends_on: tuple[int, ...]
    attributes: _Attributes
    duration_us: int


class _Message(NamedTuple):
    """A message as one of its ends sees it; both ends have its number."""

    number: int
    peer: int


def traces(traffic: Traffic) -> ChakraTraces:
    """Return a program as traces.

    A collective of objects is written as the collectives of tensors that it is made of. Pauses are
    whole microseconds, and what hosts do is left out. Raises ScenarioError where nothing tells how
    many bytes are sent.
    """
    if traffic.unknown:
        message = "a trace has bytes, and nothing tells how many an object has"
        raise ScenarioError([Problem(code="no_forecast", message=message)])
    writer = _Writer(traffic)
    for each in traffic.split_groups():
        writer.add(each)
    groups = {str(number): list(members) for members, number in writer.groups.items()}
    return ChakraTraces(
        ranks=[b"".join(_records(nodes)) for nodes in writer.nodes],
        groups=f"{json.dumps(groups)}\n",
    )


class _Writer:
    """The nodes of each rank; a node's number is its place among them."""

    def __init__(self, traffic: Traffic) -> None:
        self.nodes: list[list[_Node]] = [[] for _ in range(traffic.world_size)]
        #: members of a group that is not the world -> its number, from 1
        self.groups: dict[tuple[int, ...], int] = {}
        self._world_size = traffic.world_size
        self._messages = dict(_meetings(traffic))
        #: what the next node of each rank depends on
        self._after: list[set[int]] = [set() for _ in range(traffic.world_size)]
        #: post -> the nodes of its rows
        self._rows: dict[int, list[int]] = {}
        #: stroke of a collective, rank -> its node, the last one of a collective of objects
        self._entered: dict[tuple[int, int], int] = {}

    def add(self, entry: TrafficRow | Meet | Finish | Enter | Pause) -> None:
        """Add what came about next."""
        if isinstance(entry, TrafficRow):
            self._post(entry)
        elif isinstance(entry, Enter):
            self._enter(entry)
        elif isinstance(entry, Finish):
            self._finish(entry)
        elif isinstance(entry, Pause) and entry.seconds:
            took = max(1, round(entry.seconds * 1e6))
            for rank in np.atleast_1d(entry.ranks).tolist():
                self._return(rank, self._add(rank, "pause", _COMPUTE, {}, took))

    def _add(
        self,
        rank: int,
        name: str,
        kind: int,
        attributes: _Attributes,
        duration_us: int = 0,
    ) -> int:
        """Add a node of a rank; return its number."""
        nodes = self.nodes[rank]
        depends_on = tuple(sorted(self._after[rank]))
        nodes.append(_Node(name, kind, depends_on, attributes, duration_us))
        return len(nodes) - 1

    def _return(self, rank: int, number: int) -> None:
        """Let what comes next depend on a node, in place of what that one depends on."""
        self._after[rank].difference_update(self.nodes[rank][number].depends_on)
        self._after[rank].add(number)

    def _post(self, entry: TrafficRow) -> None:
        size = int(entry.size + (entry.header or 0))
        name, kind, end = (
            ("send", _SEND, "comm_dst") if entry.sends else ("recv", _RECEIVE, "comm_src")
        )
        found = self._rows[entry.number] = []
        for row, rank in enumerate(np.atleast_1d(entry.ranks).tolist()):
            message = self._messages[entry.number, row]
            attributes: _Attributes = {
                end: message.peer,
                "comm_size": size,
                "comm_tag": message.number,
            }
            found.append(self._add(rank, name, kind, attributes))

    def _enter(self, entry: Enter) -> None:
        parts = entry.parts or ((entry.name, entry.size),)
        for rank in np.atleast_1d(entry.ranks).tolist():
            for at, (name, size) in enumerate(parts):
                if at:
                    self._return(rank, self._entered[entry.number, rank])
                attributes = self._collective(entry, name, size)
                number = self._add(rank, name, _COLLECTIVE, attributes)
                self._entered[entry.number, rank] = number

    def _collective(self, entry: Enter, name: str, size: float) -> _Attributes:
        kind = kind_of(name)
        count = len(entry.members)
        found: _Attributes = {
            "comm_type": COLLECTIVES[kind],
            "comm_size": int(size / count if kind in _OF_ONE_RANK else size),
        }
        if entry.members != tuple(range(self._world_size)):
            number = self.groups.setdefault(entry.members, len(self.groups) + 1)
            found["pg_name"] = str(number)
        return found

    def _finish(self, entry: Finish) -> None:
        ranks = np.atleast_1d(entry.ranks).tolist()
        posted = self._rows.get(entry.post)
        if posted is None:
            numbers = [self._entered[entry.post, rank] for rank in ranks]
        else:
            rows = range(len(posted)) if entry.rows is None else np.atleast_1d(entry.rows).tolist()
            numbers = [posted[row] for row in rows]
        for rank, number in zip(ranks, numbers, strict=True):
            self._return(rank, number)


def _meetings(traffic: Traffic) -> Iterator[tuple[tuple[int, int], _Message]]:
    """Yield the message of each row of a post: a receive from anyone has a sender by now."""
    posts = {each.number: each for each in traffic.entries if isinstance(each, TrafficRow)}
    number = 0
    for each in traffic.entries:
        if not isinstance(each, Meet):
            continue
        senders, receivers = posts[each.send].ranks, posts[each.receive].ranks
        senders, receivers = np.atleast_1d(senders), np.atleast_1d(receivers)
        sent, received = (
            np.arange(len(ranks)) if rows is None else np.atleast_1d(rows)
            for ranks, rows in ((senders, each.sent), (receivers, each.received))
        )
        for out, into in zip(sent.tolist(), received.tolist(), strict=True):
            yield (each.send, out), _Message(number, int(receivers[into]))
            yield (each.receive, into), _Message(number, int(senders[out]))
            number += 1


# Protocol Buffers' encoding of the few messages of Chakra's schema (schema/protobuf/et_def.proto)
# that a trace is made of: a field is its number with the kind of its value, and the value.


def _records(nodes: list[_Node]) -> Iterator[bytes]:
    """Yield the metadata of a rank's trace and its nodes, each after its length."""
    for record in (_text(1, VERSION), *map(_encode_node, range(len(nodes)), nodes)):
        yield _varint(len(record)) + record


def _encode_node(number: int, node: _Node) -> bytes:
    parts = [
        _number(1, number),
        _text(2, node.name),
        _number(3, node.kind),
        *(_number(5, other) for other in node.depends_on),
        _number(7, node.duration_us),
        *(_bytes(10, _encode_attribute(*each)) for each in node.attributes.items()),
        _bytes(10, _encode_attribute("is_cpu_op", value=False)),
    ]
    return b"".join(parts)


def _encode_attribute(name: str, value: int | str) -> bytes:
    if isinstance(value, bool):
        return _text(1, name) + _number(27, value)
    return _text(1, name) + (_text(29, value) if isinstance(value, str) else _number(9, value))


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _bytes(field, value.encode())


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """Return a number that is not negative in groups of seven bits, the lowest first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
