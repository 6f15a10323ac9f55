"""DDP that ranks build with other arguments: its buckets and its calls follow from them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from torch_scenarios.errors import Clause
from torch_scenarios.record.evidence.choice import Reason
from torch_scenarios.record.format import RankRecord
from torch_scenarios.verdict.finding import ranks_text

#: arguments by which DDP communicates otherwise
_DECIDING = (
    *("find_unused_parameters", "static_graph", "bucket_cap_mb", "broadcast_buffers"),
    *("init_sync", "gradient_as_bucket_view"),
)
#: those that are flags
_FLAGS = {0.0: "False", 1.0: "True"}


def find_options(records: Mapping[int, RankRecord], folder: str) -> Reason | None:
    """Return the argument of DDP that ranks pass otherwise, with its line; None where all agree."""
    built = [each.wrapped_models for each in records.values()]
    for models in itertools.takewhile(all, itertools.zip_longest(*built)):
        for name in _DECIDING:
            alike: dict[float | None, list[int]] = {}
            for rank, model in zip(records, models, strict=True):
                alike.setdefault(model.options.get(name), []).append(rank)
            if len(alike) < 2:
                continue
            place = models[0].place.short(folder)
            passed = "; ".join(
                f"{_show(name, value)} on {ranks_text(ranks)}" for value, ranks in alike.items()
            )
            words = f"DDP is built with another `{name}` ({place}): {passed}"
            return Clause(words), f"pass the same `{name}` to DDP on every rank ({place})."
    return None


def _show(name: str, value: float | None) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if name.endswith("mb") else _FLAGS.get(value, f"{value:g}")
