"""The option by which a script lets ranks have other numbers of batches.

accelerate repeats rows until all ranks have as many batches, and Lightning deals rows by a sampler
that does; both can be told not to::

    DataLoaderConfiguration(even_batches=False)      10 rows in batches of 2: 3 and 2 batches
"""

from __future__ import annotations

import ast

from torch_scenarios.record.evidence.choice import DecidedParting, short
from torch_scenarios.record.evidence.script import script_at

#: options that are False where ranks may have other numbers of batches, and what they would do
_EVENING = {
    "even_batches": "accelerate repeats rows until all ranks have as many batches",
    "use_distributed_sampler": "Lightning deals the rows so that all ranks have as many batches",
}


def find_uneven_option(parted: DecidedParting) -> tuple[str, str]:
    """Return the option with its place, and what leaving it out does; both empty without one."""
    files = dict.fromkeys(
        [
            *(file for _, at in parted.parting.sides for file, _, _ in at),
            *(each.decision.file for own in parted.records.values() for each in own.ways),
        ]
    )
    for source in filter(None, map(script_at, files)):
        for node in ast.walk(source.tree):
            if not isinstance(node, ast.keyword) or node.arg not in _EVENING:
                continue
            if isinstance(node.value, ast.Constant) and node.value.value is False:
                place = short(((source.file, node.value.lineno, ""),), parted.folder)
                return f"`{node.arg}=False` ({place})", _EVENING[node.arg]
    return "", ""
