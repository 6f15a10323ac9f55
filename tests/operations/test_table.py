"""The contract that every operation of the table keeps."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import Any

import pytest
from checkout import ROOT

from torch_scenarios.model.traits import GLOO
from torch_scenarios.modules import LAYERS
from torch_scenarios.modules.loss import LOSSES
from torch_scenarios.modules.optimizer import OPTIMIZERS
from torch_scenarios.operations import BY_NAME, OPERATIONS
from torch_scenarios.operations.base import (
    Collective,
    Compound,
    GroupCreation,
    Local,
    Operation,
    PointToPoint,
    RemoteCall,
    Waiting,
    diagnosis_of,
)
from torch_scenarios.strategies import STRATEGIES
from torch_scenarios.vocabulary import DISAGREEMENTS

SHAPES = (Collective, PointToPoint, Waiting, GroupCreation, Local, Compound, RemoteCall)

#: the operations between ranks, each with a torch call of its own
COMMUNICATION = [
    each
    for each in OPERATIONS
    if isinstance(each, (Collective, PointToPoint, GroupCreation))
    or each.name == "destroy_process_group"
]
#: what torch.distributed has of them, by torch's names
OF_TORCH = [
    name
    for each in COMMUNICATION
    if each.source == f"torch.distributed.{each.name}"
    for name in (each.name, *each.aliases)
]

every_operation = pytest.mark.parametrize(
    "operation", OPERATIONS, ids=[operation.name for operation in OPERATIONS]
)


#: the corpus, as one text
CORPUS = "".join(
    path.read_text(encoding="utf-8") for path in sorted((ROOT / "scenarios").rglob("*.yaml"))
)


def test_the_corpus_has_a_file_of_each() -> None:
    operations = [name for each in OPERATIONS for name in (each.name, *each.aliases)]
    unshown = [
        name for name in operations if f"{name}:" not in CORPUS and f"op: {name}" not in CORPUS
    ]
    names = (*LAYERS, *LOSSES, *OPTIMIZERS, *STRATEGIES)
    unshown += [n for n in names if not re.search(rf"(?<!\w){re.escape(n)}(?!\w)", CORPUS)]
    assert unshown == [], f"no file below `scenarios/` runs {', '.join(unshown)}: write one"


@every_operation
def test_what_an_operation_is_is_an_operation(operation: Operation) -> None:
    assert BY_NAME.get(operation.kind, operation).kind == operation.kind


@pytest.mark.parametrize("attribute", ["c10d", "dumped"])
def test_what_torch_calls_an_operation_is_one_operation(attribute: str) -> None:
    names = [name for each in OPERATIONS for name in vars(type(each)).get(attribute, ())]
    assert names
    assert len(names) == len(set(names))


@every_operation
def test_what_a_record_has_of_an_operation_exists(operation: Operation) -> None:
    names = {param.name for param in operation.params if param.kind.startswith("tensor")}
    assert {slot.name for slot in operation.slots or ()} <= names
    assert (operation.slots is None) == (not operation.c10d)
    if isinstance(operation, Collective) and operation.payload is not None:
        assert operation.payload in names


def test_what_gloo_carries_a_collective_with_is_known() -> None:
    """In `_CARRIED_BY_GLOO` of model/traits.py, from which follows what meets what."""
    collectives = {each.name for each in OPERATIONS if isinstance(each, Collective)}
    assert collectives - GLOO.carriers.keys() == set(), "a line of `_CARRIED_BY_GLOO` has each"


def test_no_source_is_of_two_operations() -> None:
    sources = [operation.source for operation in OPERATIONS]
    assert [source for source in sources if sources.count(source) > 1] == []


def test_no_name_is_used_twice() -> None:
    names = [name for operation in OPERATIONS for name in (operation.name, *operation.aliases)]
    assert len(names) == len(set(names))


@every_operation
def test_an_operation_has_one_shape(operation: Operation) -> None:
    assert sum(isinstance(operation, shape) for shape in SHAPES) == 1


@every_operation
def test_arguments_and_their_other_names_are_unique(operation: Operation) -> None:
    names = [name for param in operation.params for name in (param.name, *param.aliases)]
    assert len(names) == len(set(names))


@every_operation
def test_an_operation_describes_itself_and_each_argument(operation: Operation) -> None:
    assert operation.__doc__
    assert operation.__doc__.strip()[0].isupper()
    for param in operation.params:
        assert param.description.endswith("."), param.name
        assert not (param.required and param.default is not None), param.name


@every_operation
def test_the_example_uses_the_operation(operation: Operation) -> None:
    assert f"{operation.name}:" in operation.example
    assert operation.example.startswith("world_size: ")


@every_operation
def test_a_bare_value_belongs_to_an_argument(operation: Operation) -> None:
    if operation.bare is not None:
        assert [param.name for param in operation.params] == [operation.bare]


@every_operation
def test_what_members_agree_on_exists(operation: Operation) -> None:
    if not isinstance(operation, Collective):
        return
    names = {param.name for param in operation.params}
    for what in operation.agree:
        name, _, attribute = what.partition(".")
        assert name in names or (name == "root" and operation.rooted), what
        assert attribute in {"", "dtype", "shape", "length"}, what
        assert attribute or name in {"root", "op"}, (
            f"no diagnosis says that members disagree on `{what}`: give it one in `diagnosis_of` "
            "of operations/base.py, and name it here"
        )
        assert diagnosis_of(what) in DISAGREEMENTS, (
            f"add {diagnosis_of(what)} to DISAGREEMENTS of vocabulary.py: `scenario record` tells "
            "by it why ranks pass what differs"
        )


@every_operation
def test_a_root_has_both_spellings(operation: Operation) -> None:
    if isinstance(operation, Collective) and operation.rooted:
        names = {param.name for param in operation.params}
        assert {operation.rooted, f"group_{operation.rooted}"} <= names


@every_operation
def test_an_operation_travels_by_name(operation: Operation) -> None:
    assert pickle.loads(pickle.dumps(operation)) is operation  # noqa: S301 -- made one line before


def function_of(name: str) -> Any:
    """Return torch's function of an operation's name."""
    import torch.distributed as dist

    words = (
        f"torch.distributed has no `{name}`: state in the operation's `source` where its meaning "
        "is written, and override `bound` or `execute`"
    )
    assert hasattr(dist, name), words
    return getattr(dist, name)


def test_what_torch_has_not_is_made_of_what_it_has() -> None:
    lacking = [
        each.name
        for each in COMMUNICATION
        if each.name not in OF_TORCH
        and (type(each).bound, type(each).execute) == (Operation.bound, Operation.execute)
    ]
    assert lacking == [], "override `bound` or `execute`"


@pytest.mark.torch
@pytest.mark.parametrize("name", OF_TORCH)
def test_torch_takes_every_argument_under_one_of_its_names(name: str) -> None:
    import torch.distributed as dist

    operation = BY_NAME[name]
    function = dist.P2POp.__init__ if name == "batch_isend_irecv" else function_of(name)
    known = set(inspect.signature(function).parameters)
    params = operation.params
    if name == "batch_isend_irecv":
        assert set(inspect.signature(dist.batch_isend_irecv).parameters) == {params[0].name}
        params = params[0].fields
    own = {"name"} if name == "new_group" else set()
    for param in params:
        assert known & {param.name, *param.aliases} or param.name in own, param.name


@pytest.mark.torch
@pytest.mark.parametrize("name", OF_TORCH)
def test_torch_has_no_argument_that_the_table_lacks(name: str) -> None:
    devices = {"device", "device_ids", "device_id", "pg_options"}
    ours = {
        other for param in BY_NAME[name].params for other in (param.name, *param.aliases)
    } | devices
    if name in {"send_object_list", "recv_object_list"}:
        ours.add("use_batch")  # how it is sent, not what
    assert set(inspect.signature(function_of(name)).parameters) <= ours
