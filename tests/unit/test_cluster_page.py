"""The Kubernetes manifest of docs/how-to/cluster.md has the fields that a PyTorchJob has."""

from __future__ import annotations

import copy
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
import yaml

from torch_scenarios.cli.run import run

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md"
#: the keys that the operator of release 1.9.0 knows, from its own definition
SCHEMA = json.loads((Path(__file__).parent / "pytorchjob.schema.json").read_text(encoding="utf-8"))


def manifest() -> dict[str, Any]:
    """Return the manifest of the page."""
    text = PAGE.read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(apiVersion.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = yaml.safe_load(block)
    return found


def test_the_manifest_is_a_pytorch_job_whose_command_line_is_one() -> None:
    job = manifest()
    jsonschema.validate(job, SCHEMA)
    specs = job["spec"]["pytorchReplicaSpecs"]
    for spec in specs.values():
        (container,) = spec["template"]["spec"]["containers"]
        program, command, *words = shlex.split(container["args"][0].replace("$(MASTER_ADDR)", "m"))
        assert (program, command) == ("scenario", "run")
        options = run.make_context("run", words).params
        assert options["nnodes"] == sum(each["replicas"] for each in specs.values())
        assert options["rdzv_endpoint"] == ("m", 29400)


def _misspelt(job: dict[str, Any]) -> None:
    job["spec"]["runPolicy"]["backofLimit"] = job["spec"]["runPolicy"].pop("backoffLimit")


def _a_number_as_text(job: dict[str, Any]) -> None:
    job["spec"]["runPolicy"]["activeDeadlineSeconds"] = "1200"


def _two_masters(job: dict[str, Any]) -> None:
    job["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"] = 2


def _another_container(job: dict[str, Any]) -> None:
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    template["spec"]["containers"][0]["name"] = "main"


def _a_volume_that_is_not_mounted_anywhere(job: dict[str, Any]) -> None:
    template = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]
    del template["spec"]["containers"][0]["volumeMounts"][0]["mountPath"]


@pytest.mark.parametrize(
    "spoil",
    [
        _misspelt,
        _a_number_as_text,
        _two_masters,
        _another_container,
        _a_volume_that_is_not_mounted_anywhere,
    ],
)
def test_the_schema_refuses_a_spoilt_manifest(spoil: Callable[[dict[str, Any]], None]) -> None:
    job = copy.deepcopy(manifest())
    spoil(job)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(job, SCHEMA)
