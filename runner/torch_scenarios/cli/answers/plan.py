"""What `scenario plan` does."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from torch_scenarios.cli.options import refuse, write_text
from torch_scenarios.cost.candidates import BFLOAT16, read_decoder
from torch_scenarios.cost.intervals import FLOAT8
from torch_scenarios.cost.topology import topology
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError, ScenarioError
from torch_scenarios.pipeline.plan import plan as find_ways
from torch_scenarios.pipeline.plan import plan_lines


def plan(options: Mapping[str, Any]) -> None:
    """Search ways to train a model: stages, replicas, shards, tensor groups, microbatches."""
    try:
        model = read_decoder(options["model"])
        machine = topology(options["machine"])
        products = FLOAT8 if options["float8"] else BFLOAT16
        found = find_ways(
            model, machine, options["gpus"], options["folder"], options["most"], products
        )
    except ScenarioError as error:
        refuse(error)
    except LaunchError as error:
        click.echo(clean(str(error)), err=True)
        sys.exit(3)
    if options["json_file"] is not None:
        content = {
            "format": "scenario-plan",
            "version": 1,
            "topology": machine.name,
            "gpus": options["gpus"],
            "ways": found.looked_at,
            "too_large": found.too_large,
            "only_by_other_code": found.open_ways,
            "long_pipelines": found.long,
            "steps": [step.json(model) for step in found.steps],
        }
        write_text(options["json_file"], json.dumps(content, indent=2) + "\n")
    if options["json_file"] != "-":
        for line in plan_lines(model, found):
            click.echo(clean(line))
    sys.exit(0 if any(step.fits for step in found.steps) else 1)
