"""Values: what counts for `==`, what may be assigned to, and what a copy derives anew."""

from __future__ import annotations

import pickle

import pytest
from checkout import PACKAGE
from msgspec.structs import replace

from torch_scenarios.errors import Mark, Problem, Source
from torch_scenarios.expressions.values import Constant, Undefined
from torch_scenarios.language.context import DefinedNames
from torch_scenarios.model.trace import Event, RankTrace
from torch_scenarios.operations.base import Group

HERE = Mark(source=Source(path="a.yaml", text="x: 1\n"), line=1, column=4)


#: columns of the engine, and what the witness writes in the user's environment, which may have no
#: msgspec
DATACLASSES = {
    "reference/vector/call.py",
    "reference/vector/cohort.py",
    "record/values/digest.py",
    "record/values/format/event.py",
}


def test_dataclasses_are_where_a_struct_cannot_be() -> None:
    modules = {
        module.relative_to(PACKAGE).as_posix()
        for module in PACKAGE.rglob("*.py")
        if "dataclasses" in module.read_text(encoding="utf-8")
    }
    assert modules == DATACLASSES


def test_a_place_takes_no_part_in_comparisons() -> None:
    one, other = Constant(value=1, mark=HERE), Constant(value=1)
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other) == "Constant(value=1)"
    assert one != Constant(value=2, mark=HERE)
    assert one != 1
    elsewhere = replace(HERE, source=replace(HERE.source, text="another"))
    assert elsewhere == HERE
    assert replace(HERE, line=2) != HERE


def test_values_of_two_classes_differ() -> None:
    assert Undefined(cause="it") != Problem(code="it", message="it")
    assert Undefined(cause="it") == Undefined(cause="it", origin=3)


def test_a_value_is_not_assigned_to() -> None:
    event = Event(index=0, label="barrier")
    with pytest.raises(AttributeError):
        event.index = 1  # type: ignore[misc]
    with pytest.raises(AttributeError):
        HERE.line = 2  # type: ignore[misc]


def test_a_copy_derives_anew_what_follows_from_its_fields() -> None:
    group = Group(key="a", name="a", ranks=(0, 1), timeout_s=1.0)
    assert replace(group, ranks=(3, 2)).listed == [3, 2]
    assert replace(group, ranks=(3, 2)).group_rank(2) == 1
    names = DefinedNames(tensors=frozenset({"x"}))
    assert "x" in names.readable
    assert "y" in replace(names, tensors=frozenset({"y"})).readable
    rank = RankTrace(rank=0)
    assert len(replace(rank, events=(Event(index=0, label="barrier"),)).own) == 1


def test_a_value_is_the_same_after_it_was_pickled() -> None:
    group = Group(key="a", name="a", ranks=(1, 0), timeout_s=1.0, mark=HERE)
    there = pickle.loads(pickle.dumps(group))  # noqa: S301 -- our own
    assert there == group
    assert there.mark == HERE
    assert there.group_rank(0) == 1
