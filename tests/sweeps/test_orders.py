"""Random programs with receives from anyone: orders that are merged hide no end."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sampling import sampled

import torch_scenarios
from torch_scenarios.expressions.functions import numpy_arrays
from torch_scenarios.limits import DEFAULT
from torch_scenarios.reference.schedules import explore
from torch_scenarios.reference.semantics import Semantics
from torch_scenarios.reference.state import stands_at
from torch_scenarios.reference.walk import Simulation

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch_scenarios.model.plan import Plan


def every_end(plan: Plan) -> set[str]:
    """Return the ends of all orders, one by one: nothing is merged, and no state is known."""
    found: set[str] = set()
    schedule: tuple[int, ...] | None = ()
    while schedule is not None:
        run = Simulation(plan, numpy_arrays(), semantics=Semantics(), schedule=schedule).run()
        found.add(end_of(run, ends_of(run)))
        schedule = None
        for at in reversed(range(len(run.choices))):
            if run.choices[at].chosen + 1 < len(run.choices[at].options):
                before = (choice.chosen for choice in run.choices[:at])
                schedule = (*before, run.choices[at].chosen + 1)
                break
    return found


def ends_of(run: Simulation) -> dict[tuple[int, str], Any]:
    return {
        (state.rank, name): state.process.scope[name]
        for state in run.ranks
        for name in state.process.held
    }


def end_of(run: Simulation, ends: Mapping[tuple[int, str], Any]) -> str:
    """Return where the ranks ended, and what they hold but for what messages left in `got`."""
    places = [(state.state, stands_at(state)) for state in run.ranks]
    held = [(place, np.asarray(ends[place]).tolist()) for place in sorted(ends)]
    return str((places, [each for each in held if each[0][1] != "got"]))


def random_program(seed: int) -> str:
    """Return a program of three or four ranks with at most five messages, some of them equal."""
    draw = random.Random(seed)  # noqa: S311 -- a program, no secret
    size = draw.choice([3, 3, 4])
    steps, handle = [], 0
    receivers = [0] if draw.random() < 0.6 else [0, 1]
    for _ in range(draw.randint(2, 5)):
        target = draw.choice(receivers)
        source = draw.choice([rank for rank in range(size) if rank != target])
        handle += 1
        value = draw.choice(["[7]", "[7]", f"[{source}]"])
        sent = {"plain": f"{{ranks: {source}, send: {{tensor: {value}, dst: {target}}}}}"}
        sent["later"] = (
            f"{{ranks: {source}, isend: {{tensor: {value}, dst: {target}}}, as: s{handle}}}"
        )
        named = draw.random() < 0.2
        received = (
            f"{{ranks: {target}, recv: {{tensor: got{', src: ' + str(source) if named else ''}}}}}"
        )
        kept = draw.choice(["total + got", "total * 2 + got", "total + got", "total"])
        block = [
            sent[draw.choice(["plain", "plain", "later"])],
            received,
            f'{{ranks: {target}, compute: {{total: "{kept}"}}}}',
        ]
        if draw.random() < 0.3:
            block.append(
                f'{{ranks: "rank == {target} and got[0] == 7", compute: {{total: "total + 10"}}}}'
            )
        if draw.random() < 0.5:
            steps += block
        else:
            steps = [block[0], *steps, *block[1:]]
        if draw.random() < 0.15:
            steps.append("{barrier: {}}")
    steps += [
        f"{{wait: s{number}}}"
        for number in range(1, handle + 1)
        if f"as: s{number}}}" in str(steps)
    ]
    body = "".join(f"  - {step}\n" for step in steps)
    return f"world_size: {size}\ntensors: {{got: [0], total: [0]}}\nsteps:\n{body}"


@pytest.mark.parametrize("block", sampled(range(10), 4))
def test_what_is_merged_hides_no_end(tmp_path: Path, block: int) -> None:
    for seed in range(block * 40, block * 40 + 40):
        path = tmp_path / f"program{seed}.yaml"
        path.write_text(random_program(seed), encoding="utf-8")
        (scenario,) = torch_scenarios.load(path)
        plan = torch_scenarios.plan(scenario)
        runs, bounded = explore(plan, numpy_arrays(), Semantics(), limits=DEFAULT)
        only = ends_of(Simulation(plan, numpy_arrays(), semantics=Semantics()).run())
        seen = {end_of(run.simulation, run.ends or only) for run in runs if not run.simulation.cut}
        assert not bounded
        assert seen == every_end(plan), random_program(seed)
