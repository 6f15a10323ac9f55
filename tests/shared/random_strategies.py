"""Random models that random strategies train, and what makes of them another or a wrong one."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

#: strategy -> the mistakes that can be made in it
MISTAKES = {
    "ddp": ("rate", "sum", "parts", "no_sync"),
    "zero1": ("rate", "sum", "parts", "no_sync"),
    "fsdp": ("rate", "sum", "parts"),
    "hsdp": ("rate", "sum"),
    "tp": ("rate", "sum", "inputs"),
    "fsdp_tp": ("rate", "sum"),
    "pp": ("rate", "sum", "scale"),
}
#: strategies of two dimensions, on four ranks
OF_A_SQUARE = ("hsdp", "fsdp_tp")
#: strategy -> the group whose members share the batch; without one each takes all of it
BATCH = {"ddp": "world", "zero1": "world", "fsdp": "mesh.a", "hsdp": "world", "fsdp_tp": "mesh.a"}
ACTIVATIONS = ("ReLU", "GELU", "Tanh")


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomTraining:
    """A scenario that trains one model, as the tree of its file, on so many ranks and rows."""

    strategy: str
    ranks: int
    rows: int
    tree: dict[str, Any]

    @property
    def text(self) -> str:
        """The file."""
        return str(yaml.safe_dump(self.tree, sort_keys=False))

    @property
    def model(self) -> dict[str, Any]:
        """The entry of the model."""
        entry: dict[str, Any] = self.tree["models"]["net"]
        return entry

    @property
    def blocks(self) -> bool:
        """Whether it has blocks, which add their input."""
        return any("Residual" in layer for each in self.model["layers"] for layer in each.values())

    def with_another_weight(self, random: Random) -> RandomTraining:
        """Return one that begins with a thousandth more in one element of a weight."""
        other = replace(self, tree=deepcopy(self.tree))
        init = other.model["init"]
        name = random.choice(sorted(init))
        shape = yaml.safe_load(init[name].partition("(")[2].partition("]")[0] + "]")
        size = shape[0] * shape[1]
        one = f"reshape(where(arange({size}) == {random.randrange(size)}, 0.001, 0.0), {shape})"
        init[name] = f"{init[name]} + {one}"
        return other

    def with_another_rate(self) -> RandomTraining:
        """Return one that learns by half as much again.

        A weight may be off by what float32's tolerance allows, 1e-5: a small gradient times a small
        change of the rate is less than that after a step.
        """
        return self.learning(lambda rate: rate * 1.5)

    def learning(self, rate: Callable[[float], float]) -> RandomTraining:
        """Return one that learns by what a function makes of its rate."""
        other = replace(self, tree=deepcopy(self.tree))
        for arguments in other.model["optimizer"].values():
            arguments["lr"] = rate(arguments["lr"])
        return other

    def with_mistake(self, mistake: str) -> RandomTraining:
        """Return one that does not train as one process does.

        It learns slowly: where a wrong program diverges, rounding does as well.
        """
        slow = 0.001 if mistake == "sum" else 0.01
        wrong = self.learning(lambda _: slow / (10 if self.blocks else 1))
        model = wrong.model
        if mistake == "rate":
            right, wrong = wrong, wrong.learning(lambda rate: rate * self.ranks)
            wrong.model["oracle"] = {"optimizer": right.model["optimizer"]}
        elif mistake == "sum":
            model |= {"oracle": {"loss": model["loss"]}, "loss": {"mse_loss": {"reduction": "sum"}}}
        elif mistake == "scale":
            model["parallel"][0]["pipeline"]["scale_grads"] = False
        elif mistake == "inputs":
            x = wrong.tree["tensors"]["x"]
            wrong.tree["tensors"]["x"] = x.replace(", 1)", ", rank + 1)")
        if mistake == "no_sync":
            # of gradients the first step of Adam reads the sign alone
            last = wrong.tree["steps"][-1]["train"]
            last.pop("zero_grad", None)
            wrong.tree["steps"] = [{"train": dict(last)} for _ in range(3)]
            given = model["parallel"][0]["DistributedDataParallel"]
            given.pop("static_graph", None)
            # and by half of the digits each of its steps may be off by as much as the mistake
            given.pop("comm_hook", None)
        for step in wrong.tree["steps"]:
            if mistake == "no_sync":
                step["train"]["sync"] = False
            elif mistake == "parts":
                each = self.rows // self.ranks
                sizes = [each + 1, *[each] * (self.ranks - 2), each - 1]
                step["train"]["batch"] = {"group": BATCH[self.strategy], "sizes": sizes}
        return wrong


def random_training(random: Random, strategy: str) -> RandomTraining:
    """Return a program that trains as one process does."""
    square = strategy in OF_A_SQUARE
    ranks = 4 if square else random.choice((2, 2, 3, 4))
    made = _blocks if random.random() < 0.4 else _layers
    layers, cuts, width = made(random, of=2 if square else ranks, stages=ranks)
    labelled = {f"l{at}": layer for at, layer in enumerate(layers)}
    # by larger rates what adds up from block to block diverges
    rates = (0.001, 0.01) if made is _blocks else (0.01, 0.1)
    optimizer = _optimizer(random, rates)
    parallel = _parallel(random, strategy, labelled, cuts, ranks)
    rows = ranks * random.choice((2, 3, 4))
    if strategy == "pp":
        rows = parallel[0]["pipeline"]["n_microbatches"] * random.choice((1, 2, 3))
    init = {
        f"{name}.weight": f"random([{of['out_features']}, {of['in_features']}], {at + 9}) / 2"
        for at, (name, of) in enumerate(_linears(labelled))
    }
    model = {
        "layers": [{label: layer} for label, layer in labelled.items()],
        "init": init,
        "loss": "mse_loss",
        "optimizer": optimizer,
        "parallel": parallel,
    }
    inner = [random.choice((1, 3))] if made is _blocks else []
    tree = {
        "world_size": ranks,
        "groups": {
            "mesh": {"shape": [2, 2], "dims": ["a", "b"]}
            if square
            else {"shape": [ranks], "dims": ["a"]}
        },
        "tensors": {
            "x": f"random({[rows, *inner, width[0]]}, 1)",
            "y": f"random({[rows, *inner, width[1]]}, 2)",
        },
        "models": {"net": model},
        "steps": _steps(random, strategy, parallel),
    }
    return RandomTraining(strategy=strategy, ranks=ranks, rows=rows, tree=tree)


# -------------------------------------------------------------------------------------------------
# The parts of a program.


#: layers, the plans by which the features between some of them are cut, and the widths of both ends
Built: TypeAlias = "tuple[list[Any], list[dict[str, str]], tuple[int, int]]"


def _layers(random: Random, *, of: int, stages: int) -> Built:
    """Return Linear layers with activations and norms; features can be cut over `of` ranks."""
    first = width = random.choice((2, 3, 4, 5))
    layers: list[Any] = []
    cuts: list[dict[str, str]] = []
    while sum(map(_learns, layers)) < stages or not cuts or random.random() < 0.3:
        if layers and random.random() < 0.4:
            norm = random.choice(("LayerNorm", "RMSNorm"))
            layers.append({norm: {"normalized_shape": width}})
        hidden, made = of * random.choice((1, 2, 3)), random.choice((2, 3, 4, 5))
        ends = f"l{len(layers)}", f"l{len(layers) + 2}"
        cuts.append(dict(zip(ends, ("ColwiseParallel", "RowwiseParallel"), strict=True)))
        layers += [
            _linear(random, width, hidden),
            {random.choice(ACTIVATIONS): {}},
            _linear(random, hidden, made),
        ]
        width = made
    return layers, cuts, (first, width)


def _blocks(random: Random, *, of: int, stages: int) -> Built:
    """Return the halves of transformer blocks, attention and features, each with its input added.

    Heads and features can be cut over `of` ranks.
    """
    heads = of * random.choice((1, 2))
    width = heads * random.choice((1, 2))
    layers: list[Any] = []
    cuts: list[dict[str, str]] = []
    while len(layers) < stages or random.random() < 0.3:
        inside: list[Any] = []
        if random.random() < 0.7:
            norm = random.choice(("LayerNorm", "RMSNorm"))
            inside.append({"norm": {norm: {"normalized_shape": width}}})
        label = f"l{len(layers)}"
        if random.random() < 0.5:
            given = {"embed_dim": width, "num_heads": heads}
            inside.append({"attn": {"CausalSelfAttention": given}})
            plan = {f"{label}.attn.{each}": "ColwiseParallel" for each in "qkv"}
            cuts.append(plan | {f"{label}.attn.o": "RowwiseParallel"})
        else:
            hidden = of * random.choice((1, 2))
            inside += [
                {"up": _linear(random, width, hidden)},
                {"act": {random.choice(ACTIVATIONS): {}}},
                {"down": _linear(random, hidden, width)},
            ]
            cuts.append({f"{label}.up": "ColwiseParallel", f"{label}.down": "RowwiseParallel"})
        layers.append({"Residual": inside})
    return layers, cuts, (width, width)


def _linears(labelled: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the Linear layers with their labels, those of attention and of blocks as well."""
    found: list[tuple[str, dict[str, Any]]] = []
    for label, layer in labelled.items():
        ((name, given),) = layer.items()
        if name == "Linear":
            found.append((label, given))
        elif name == "CausalSelfAttention":
            square = {"in_features": given["embed_dim"], "out_features": given["embed_dim"]}
            found += [(f"{label}.{each}", square) for each in "qkvo"]
        elif name == "Residual":
            inside = {f"{label}.{key}": value for each in given for key, value in each.items()}
            found += _linears(inside)
    return found


def _learns(layer: dict[str, Any]) -> bool:
    return not any(name in layer for name in ACTIVATIONS)


def _linear(random: Random, width: int, made: int) -> dict[str, Any]:
    given: dict[str, Any] = {"in_features": width, "out_features": made}
    return {"Linear": given if random.random() < 0.7 else {**given, "bias": False}}


def _optimizer(random: Random, rates: tuple[float, float]) -> dict[str, Any]:
    given: dict[str, Any] = {"lr": random.choice(rates)}
    if random.random() < 0.4:
        given["weight_decay"] = 0.1
    name = random.choice(("SGD", "Adam", "AdamW"))
    if name == "SGD" and random.random() < 0.6:
        given |= {"momentum": 0.9, "nesterov": random.choice((True, False))}
    elif name != "SGD" and random.random() < 0.4:
        given["betas"] = [0.5, 0.9]
    return {name: given}


def _parallel(
    random: Random,
    strategy: str,
    labelled: dict[str, Any],
    cuts: list[dict[str, str]],
    ranks: int,
) -> list[Any]:
    if strategy == "pp":
        return [{"pipeline": _pipeline(random, labelled, ranks)}]
    if strategy in {"ddp", "zero1"}:
        given: dict[str, Any] = {}
        if random.random() < 0.6:
            given["bucket_cap_mb"] = random.choice((0.00005, 0.0001, 0.0003))
        if random.random() < 0.4:
            given[random.choice(("find_unused_parameters", "static_graph"))] = True
        if random.random() < 0.4:
            given["comm_hook"] = _hook(random, given)
        wrapped: list[Any] = [{"DistributedDataParallel": given}]
        return wrapped if strategy == "ddp" else [*wrapped, {"ZeroRedundancyOptimizer": {}}]
    heavy = [label for label, layer in labelled.items() if _learns(layer)]
    whole: dict[str, Any] = {
        "mesh": "mesh" if strategy == "hsdp" else "mesh.a",
        "modules": [label for label in heavy if random.random() < 0.7],
    }
    if random.random() < 0.5:
        whole["reshard_after_forward"] = random.choice((True, False))
    plan: dict[str, str] = {}
    for each in random.sample(cuts, random.randint(1, len(cuts))):
        plan |= each
    by = "mesh.b" if strategy == "fsdp_tp" else "mesh.a"
    features = {"parallelize_module": {"device_mesh": by, "parallelize_plan": plan}}
    if strategy == "tp":
        return [features]
    rows = {"fully_shard": whole}
    return [features, rows] if strategy == "fsdp_tp" else [rows]


def _pipeline(random: Random, labelled: dict[str, Any], ranks: int) -> dict[str, Any]:
    labels = list(labelled)
    # each stage begins with a layer that learns
    learning = [at for at, each in enumerate(labels) if _learns(labelled[each])]
    cuts = [0, *sorted(random.sample(learning[1:], ranks - 1)), len(labels)]
    return {
        "mesh": "mesh.a",
        "stages": [labels[a:b] for a, b in pairwise(cuts)],
        "schedule": random.choice(("ScheduleGPipe", "Schedule1F1B")),
        "n_microbatches": ranks + random.randrange(3),
    }


def _hook(random: Random, given: dict[str, Any]) -> Any:
    """Return a hook whose gradients are the mean: powerSGD_hook with as many columns as there are.

    It goes with one bucket, and with gradients that are all there.
    """
    hooks: list[Any] = ["allreduce_hook", "fp16_compress_hook"]
    if "bucket_cap_mb" not in given and "find_unused_parameters" not in given:
        # without a number added a gradient of zeros becomes NaN
        power = {"matrix_approximation_rank": 99, "orthogonalization_epsilon": 1e-8}
        power |= {"start_powerSGD_iter": 2, "min_compression_rate": 0.01}
        hooks.append({"powerSGD_hook": power})
    return random.choice(hooks)


def _steps(random: Random, strategy: str, parallel: list[Any]) -> list[Any]:
    train: dict[str, Any] = {"model": "net", "input": "x", "target": "y"}
    if strategy in BATCH:
        train["batch"] = BATCH[strategy]
    if strategy in {"ddp", "fsdp"} and random.random() < 0.3:
        train["clip_grad_norm_"] = 0.5
    given = parallel[0].get("DistributedDataParallel", {})
    count = random.randint(1, 3) if "powerSGD_hook" not in str(given) else 4
    steps = [{"train": dict(train)} for _ in range(count)]
    if strategy in {"ddp", "zero1", "fsdp", "hsdp"} and random.random() < 0.3:
        # a static graph is learnt in a backward that synchronises; what is clipped is a step's
        kept = {name: value for name, value in train.items() if name != "clip_grad_norm_"}
        kept |= {"zero_grad": False, "step": False}
        if "static_graph" not in given and random.random() < 0.7:
            kept["sync"] = False
        steps[-1]["train"]["zero_grad"] = False
        before = [{"train": dict(kept)} for _ in range(random.randint(1, 2))]
        before[0]["train"]["zero_grad"] = True
        steps[-1:] = [*before, steps[-1]]
    return steps
