"""The Kubernetes manifest of docs/how-to/cluster.md has the fields that a PyTorchJob has."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from runner.cli.run import run

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md"
#: a part of the CustomResourceDefinition pytorchjobs.kubeflow.org, v1: what the manifest uses
REPLICA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["template"],
    "properties": {
        "replicas": {"type": "integer", "minimum": 1},
        "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
        "template": {
            "type": "object",
            "required": ["spec"],
            "additionalProperties": False,
            "properties": {
                "metadata": {"type": "object"},
                "spec": {
                    "type": "object",
                    "required": ["containers"],
                    "properties": {
                        "containers": {
                            "type": "array",
                            "contains": {"properties": {"name": {"const": "pytorch"}}},
                            "items": {"type": "object", "required": ["name", "image"]},
                        }
                    },
                },
            },
        },
    },
}
SCHEMA = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "kubeflow.org/v1"},
        "kind": {"const": "PyTorchJob"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "required": ["pytorchReplicaSpecs"],
            "additionalProperties": False,
            "properties": {
                "nprocPerNode": {"type": "string"},
                "elasticPolicy": {"type": "object"},
                "runPolicy": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "activeDeadlineSeconds": {"type": "integer"},
                        "backoffLimit": {"type": "integer"},
                        "cleanPodPolicy": {"enum": ["All", "Running", "None"]},
                        "suspend": {"type": "boolean"},
                        "ttlSecondsAfterFinished": {"type": "integer"},
                    },
                },
                "pytorchReplicaSpecs": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["Master"],
                    "properties": {"Master": REPLICA, "Worker": REPLICA},
                },
            },
        },
    },
}


def test_the_manifest_is_a_pytorch_job_whose_command_line_is_one() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (block,) = re.findall(r"^```yaml\n(apiVersion.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    manifest = yaml.safe_load(block)
    jsonschema.validate(manifest, SCHEMA)
    specs = manifest["spec"]["pytorchReplicaSpecs"]
    for spec in specs.values():
        (container,) = spec["template"]["spec"]["containers"]
        program, command, *words = shlex.split(container["args"][0].replace("$(MASTER_ADDR)", "m"))
        assert (program, command) == ("scenario", "run")
        options = run.make_context("run", words).params
        assert options["nnodes"] == sum(each["replicas"] for each in specs.values())
        assert options["rdzv_endpoint"] == ("m", 29400)
