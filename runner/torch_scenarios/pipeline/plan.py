"""A model, a machine, a number of GPUs -> ways to train, each a program that is weighed."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.cost.candidates import (
    ALL,
    BFLOAT16,
    EVERY_SECOND,
    FUSED,
    MOST_TURNS,
    NOTHING,
    RECIPE,
    SOME,
    ZERO_0,
    ZERO_1,
    Candidate,
    Decoder,
)
from torch_scenarios.cost.collectives import CollectiveTimes
from torch_scenarios.cost.forecast import Forecast, forecast_alone, microseconds, publishers, widen
from torch_scenarios.cost.intervals import (
    FITS,
    FLOAT8,
    FORMS,
    TIGHT,
    TOO_LARGE,
    form_interval,
    form_ratios,
    memory_interval,
    planned_steps,
    reserve,
    step_interval,
    tell_fit,
)
from torch_scenarios.cost.schedule import WORDS
from torch_scenarios.cost.topology import Gpu, Topology
from torch_scenarios.errors import LaunchError, Problem, ScenarioError
from torch_scenarios.language.document import load_content
from torch_scenarios.limits import DEFAULT
from torch_scenarios.model.scenario import steps_of
from torch_scenarios.operations.compute import Compute
from torch_scenarios.pipeline.attempts import weigh

#: microbatches of one stage that are weighed; more repeat the last
FEW_TURNS = 2
#: the tuner's word for A100
AMPERE = "ampere"


class PlannedStep(Struct, frozen=True, kw_only=True):
    """A candidate, its file, and what its step costs.

    The file is a scenario like any other: it can be read, checked and forecast again, so that the
    number is not one to be believed. It holds `held` bytes, and by other code `least`. Kernels of a
    block wait `waits_us` for their host, forwards and backwards. By its `forms` it is compared with
    published steps.
    """

    way: Candidate
    path: Path
    held: float
    least: float
    verdict: str
    forecast: Forecast
    bottleneck: str
    bubble_us: float = 0.0
    waits_us: float = 0.0
    forms: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether it may fit: what an allocator reserves at the least is there."""
        return self.verdict != TOO_LARGE

    @property
    def reserved(self) -> tuple[float, float]:
        """Between what bytes an allocator reserves for 80 % of such steps."""
        return reserve(self.held, self.least, is_planned=True)

    def tokens_a_second(self, model: Decoder) -> float:
        """Return how many tokens each GPU trains with in a second."""
        return model.batch * model.sequence / self.way.ranks / (self.forecast.time / 1e6)

    def json(self, model: Decoder) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "file": str(self.path),
            "stages": self.way.stages,
            "schedule": WORDS[self.way.schedule] if self.way.stages > 1 else None,
            "parts_of_a_stage": self.way.parts,
            "replicas": self.way.replicas,
            "shards": self.way.shards,
            "contexts": self.way.context,
            "experts": self.way.expert,
            "tensor": self.way.tensor,
            "products": self.way.products,
            "microbatch": self.way.micro,
            "microbatches": self.way.turns,
            "blocks_in_a_call": self.way.together,
            "zero": self.way.zero if self.way.stages == 1 else 1,
            "recompute": self.way.recompute,
            "held_bytes": self.held,
            "least_bytes": self.least,
            "reserved_bytes": list(self.reserved),
            "fits": self.fits,
            "tight": self.verdict == TIGHT,
            "time_us": self.forecast.time,
            "interval_us": [self.forecast.low, self.forecast.high],
            "error": self.forecast.error,
            "exposed_us": self.forecast.exposure,
            "bubble_us": self.bubble_us,
            "host_waits_us": self.waits_us,
            "tokens_per_s_per_gpu": self.tokens_a_second(model),
            "bottleneck": self.bottleneck,
        }


class TrainingPlan(Struct, frozen=True, kw_only=True):
    """The candidates that were weighed, the quickest first, and how many there are of what sort.

    `open_ways` have room by the code that holds least, and not as a model is taken that states
    nothing of it.
    `long` are pipelines that fit and were not weighed, for they have many microbatches; `estimates`
    names the quickest of them and of the others, with the microseconds that an estimate gives them.
    `is_compared` says whether a published step was measured on a GPU of the machine's kind, `gpu`,
    of which a node has `node`, with `memory` bytes each.
    """

    steps: tuple[PlannedStep, ...]
    looked_at: int
    too_large: int
    open_ways: int = 0
    long: int = 0
    estimates: tuple[tuple[str, float], ...] = ()
    is_compared: bool = True
    gpu: str = ""
    node: int = 0
    memory: float = 0.0


def plan(
    model: Decoder,
    machine: Topology,
    ranks: int,
    folder: Path,
    most: int,
    products: str = BFLOAT16,
) -> TrainingPlan:
    """Weigh the `most` candidates that take least by estimate, of those that fit.

    Where none fits, the one that holds least is weighed. Raises ScenarioError where the machine has
    no GPU, or none that knows the products, or nothing divides the model and its batch; LaunchError
    where a file cannot be written.
    """
    gpu = machine.gpu
    if gpu is None or not machine.memory:
        lacks = " and ".join(["`gpu`"] * (gpu is None) + ["`memory`"] * (not machine.memory))
        message = f"topology {machine.name} has no {lacks}: no step is planned on it"
        hint = "`scenario topology show h100-8x400g` has both: copy them, and state their source"
        raise ScenarioError([Problem(code="bad_topology", message=message, hint=hint)])
    if products not in gpu.tflops:
        message = f"the `gpu` of topology {machine.name} has no {products}"
        hint = f"its `tflops` have {', '.join(sorted(gpu.tflops))}"
        raise ScenarioError([Problem(code="bad_topology", message=message, hint=hint)])
    machine = machine.spread(ranks)
    ways = list(model.candidates(machine, ranks, products))
    if not ways:
        message = f"nothing divides the model and its batch of {model.batch} by {ranks} GPUs"
        hint = "take a `batch` that the number of GPUs divides, or fewer GPUs"
        raise ScenarioError([Problem(code="bad_model", message=message, hint=hint)])
    least = model.hold_least()
    loads = {way: model.load(way, gpu) for way in ways}
    verdicts = {
        way: tell_fit(load.held, machine.memory, is_planned=True) for way, load in loads.items()
    }
    fitting = [way for way in ways if verdicts[way] != TOO_LARGE]
    open_ways = [
        way
        for way in ways
        if verdicts[way] == TOO_LARGE
        and tell_fit(least.load(way, gpu).held, machine.memory, is_planned=True) != TOO_LARGE
    ]
    times = CollectiveTimes(machine, ranks)
    estimates = {way: model.estimate_us(way, loads[way], times) for way in fitting}
    ranked = sorted(fitting, key=estimates.__getitem__)
    long = [way for way in ranked if way.is_long]
    short = [way for way in ranked if not way.is_long]
    chosen = choose_ways(short, [way for way in short if verdicts[way] == FITS], most)
    if not chosen and long:  # nothing else fits: the shortest of them is weighed
        chosen = [min(long, key=lambda way: way.turns)]
        long.remove(chosen[0])
    if not chosen:
        left = open_ways or ways
        left = [way for way in left if not way.is_long] or left
        chosen = [min(left, key=lambda way: loads[way].held)]
    found = [weigh_candidate(model, way, machine, gpu, folder) for way in chosen]
    return TrainingPlan(
        steps=tuple(sorted(found, key=lambda step: step.forecast.time)),
        looked_at=len(ways),
        too_large=len(ways) - len(fitting) - len(open_ways),
        open_ways=len(open_ways),
        long=len(long),
        estimates=tuple((way.name, estimates[way]) for way in (*long[:1], *chosen[:1]))
        if long
        else (),
        is_compared=_is_compared(machine),
        gpu=machine.tuner.gpu if machine.tuner else "",
        node=machine.node_ranks or 0,
        memory=machine.memory,
    )


def choose_ways(short: list[Candidate], sure: list[Candidate], most: int) -> list[Candidate]:
    """Return the first ways, the quickest that is sure to fit and one of DDP among them.

    One of them fits whatever the memory's error is, and who trains by DDP sees how far behind DDP
    is. Of two ways the second is DDP's, where that is sure to fit: it is both.
    """
    kept = sure[:1] if most > 1 else []

    def chosen() -> list[Candidate]:
        first = [way for way in short if way not in kept][: most - len(kept)]
        return [way for way in short if way in first or way in kept]

    whole = [way for way in sure if way.zero == ZERO_0][:1]
    if kept and whole and not any(way.zero == ZERO_0 for way in chosen()):
        kept = [*kept, *whole][-(most - 1) :]
    return chosen()


def _is_compared(machine: Topology) -> bool:
    """Return whether planned steps were measured on a GPU of the machine's kind."""
    kind = machine.tuner.gpu if machine.tuner else ""
    found = step_interval(machine.name, machine.kind, kind, is_planned=True)
    return found is not None and found.alike


def weigh_candidate(
    model: Decoder, way: Candidate, machine: Topology, gpu: Gpu, folder: Path
) -> PlannedStep:
    """Write the program of a candidate to a folder, prove it, and weigh it.

    Raises LaunchError where the file cannot be written, or its analysis takes too long.
    """
    path, machine = folder / f"{way.name}.yaml", machine.spread(way.ranks)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(model.program(way, gpu), encoding="utf-8")
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise LaunchError(message) from error
    if way.stages > 1 or way.turns <= FEW_TURNS:
        alone, held, shares = _weigh(model, way, machine, gpu, path)
    else:
        few = [replace(way, turns=turns) for turns in (FEW_TURNS - 1, FEW_TURNS)]
        (short, _, before), (longer, held, last) = (
            _weigh(model, each, machine, gpu, path) for each in few
        )
        times = way.turns - FEW_TURNS
        alone = _repeat(short, longer, times)
        shares = {name: us + times * (us - before.get(name, 0.0)) for name, us in last.items()}
    forms = model.forms_of(way, gpu)
    found = widen(alone, forms)
    least = min(held, float(int(model.hold_least().load(way, gpu).held)))
    load = model.load(way, gpu)
    return PlannedStep(
        way=way,
        path=path,
        held=held,
        least=least,
        verdict=tell_fit(held, machine.memory, least, is_planned=True),
        forecast=found,
        bottleneck=_bottleneck(found.time, shares),
        bubble_us=model.bubble_us(way, load, CollectiveTimes(machine, way.ranks)),
        waits_us=load.waits,
        forms=tuple(forms),
    )


def _weigh(
    model: Decoder, way: Candidate, machine: Topology, gpu: Gpu, path: Path
) -> tuple[Forecast, float, dict[str, float]]:
    """Prove the program of a candidate; return its forecast, bytes held, and its critical path.

    Of that it is how long, in microseconds, all steps of an operation are on it together.
    """
    limits = replace(DEFAULT, max_ranks=max(DEFAULT.max_ranks, way.ranks))
    (scenario,) = load_content(path, model.program(way, gpu).encode(), limits=limits)
    analysis = weigh(scenario, limits)
    predicted = analysis.predicted
    if analysis.verdict.status == "INCONCLUSIVE":
        message = f"{path} was not weighed: {analysis.verdict.reason}"
        raise LaunchError(message)
    assert analysis.verdict.status == "PASSED", analysis.verdict  # what is written is right
    assert predicted is not None
    assert predicted.traffic is not None
    assert analysis.footprint is not None
    forms = model.forms_of(way, gpu)
    found = forecast_alone(predicted.traffic, machine, reckoned=True, forms=forms)
    names, shares = _names(steps_of(scenario.steps)), dict[str, float]()
    for part in found.steps:
        name = names.get(int(part.part), "step")
        shares[name] = shares.get(name, 0.0) + part.on_path
    return found, analysis.footprint.bytes_held, shares


def _repeat(short: Forecast, longer: Forecast, times: int) -> Forecast:
    """Return a forecast of more turns, each of which adds what the last one of two forecasts did.

    Turns of one stage are the same calls, and what the machine does with them the same: so a
    forecast of all turns is this to ten digits.
    """

    def add(name: str) -> float:
        last, before = (float(getattr(each, name)) for each in (longer, short))
        return last + times * (last - before)

    low, high = add("low"), add("high")
    begin, colon, rest = longer.error.partition(": ")
    if colon and " to " in begin:
        begin = f"80 % of such steps took {microseconds(low)} to {microseconds(high)}"
    return replace(
        longer,
        time=add("time"),
        low=low,
        high=high,
        latest=add("latest"),
        computing=add("computing"),
        idle=add("idle"),
        error=begin + colon + rest,
    )


def _names(steps: Any) -> dict[int, str]:
    return {each.index: getattr(each.operation, "name", None) or "step" for each in steps}


def _bottleneck(time: float, shares: dict[str, float]) -> str:
    """Return what the critical path is in longest, all steps of an operation together."""
    name = max(shares, key=lambda each: shares[each])
    others = {key: value for key, value in shares.items() if key != Compute.name}
    words = f"{name} {shares[name] / time:.0%}"
    if name == Compute.name and others:
        second = max(others, key=lambda each: others[each])
        words += f", {second} {others[second] / time:.0%}"
    return words


#: how the table says what of a block a backward pass computes anew
_RECOMPUTED = {NOTHING: "", SOME: "recompute some", ALL: "recompute"}


def plan_lines(model: Decoder, found: TrainingPlan) -> Sequence[str]:
    """Return whether the model fits, and a plan as a table."""
    head = ("", "step", "of 80 %", "tokens/s/GPU", "exposed", "bubble")
    rows = [
        (*head, "reserves, of 80 %", "tensors", "", "bottleneck", "file"),
        *(
            (
                step.verdict,
                microseconds(step.forecast.time),
                step.forecast.interval_words,
                f"{step.tokens_a_second(model):.0f}",
                f"{step.forecast.exposure / step.forecast.time:.0%}",
                f"{step.bubble_us / step.forecast.time:.0%}" if step.way.stages > 1 else "",
                _tell_between(step.reserved),
                f"{step.held / 2**30:.1f} GiB",
                _tell_recomputed(model, step.way),
                step.bottleneck,
                str(step.path),
            )
            for step in found.steps
        ),
    ]
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    large = "does not fit" if found.too_large == 1 else "do not fit"
    ways = "1 way divides" if found.looked_at == 1 else f"{found.looked_at} ways divide"
    were = "was" if len(found.steps) == 1 else "were"
    less = f", {found.open_ways} more fit only with code that holds less"
    other = less if found.open_ways else ""
    summary = (
        f"{ways} the model, {found.too_large} of them {large}{other}; "
        f"{len(found.steps)} {were} proved and weighed"
    )
    reserved = memory_interval(is_planned=True)
    products = {step.way.products for step in found.steps}
    stated = [f"kernels are formulas, in {' and '.join(products)}: {_tell_compared(model, found)}"]
    stated.append(
        f"80 % of such steps reserve {reserved.low:.2f} to {reserved.high:.2f} times their tensors "
        f"({reserved.rows} steps that {reserved.sets} projects measured): {FITS} where the GPU has "
        f"the most of it, {TIGHT} where it has the least"
    )
    if any(step.least < step.held for step in found.steps):
        has_groups = any(step.way.tensor > 1 for step in found.steps)
        stated.append(_tell_open(model, products, has_groups=has_groups))
    if model.kernels == FUSED:
        stated.append(
            "a norm, and a gate, is one kernel: state `kernels: eager` where it is several, as "
            "Hugging Face's are, and `kernels: compiled` of blocks that torch.compile compiles"
        )
    if not model.tensor_overlap and any(step.way.tensor > 1 for step in found.steps):
        stated.append(
            "ranks of a tensor group wait for what they exchange: state `tensor_overlap: 1` where "
            "their products run meanwhile (Megatron's --tp-comm-overlap, torch's async TP)"
        )
    if not model.matrix and any(step.way.recompute == NOTHING for step in found.steps):
        stated.append(
            "attention is a fused kernel: steps of one that keeps its matrix held up to 2.3 times "
            "this memory; state `matrix: 1` for such a model"
        )
    if any(step.way.stages == 1 and step.way.turns > FEW_TURNS for step in found.steps):
        stated.append(
            f"of more than {FEW_TURNS} microbatches on one stage {FEW_TURNS - 1} and {FEW_TURNS} "
            "are proved and weighed: each further one takes what the last one adds"
        )
    if any(step.way.stages > 1 for step in found.steps):
        stated.append(
            "a pipeline keeps the gradients of its stage whole on each rank: to shard them "
            "after each round of microbatches is not planned, nor are interleaved zero bubble "
            "and DualPipe"
        )
    waiting = [step.way.name for step in found.steps if step.waits_us > 0]
    if waiting:
        stated.append(
            f"in {', '.join(waiting)} the kernels of a block take less than an eager host takes to "
            "start them: larger microbatches help, fewer ranks of a tensor group, or torch.compile"
        )
    stated += _tell_parted(found) + _tell_filled(model, found)
    if found.gpu == AMPERE and any(step.way.recompute == ALL for step in found.steps):
        stated.append(
            "on A100 steps that recompute everything took 0.79 to 0.90 times their forecast, as "
            "2 projects published them, and 1.02 to 1.09 times it, as Megatron's paper of 2021 did"
        )
    answer = _tell_fits(found)
    return [*answer, *lines, summary, *_tell_left_out(found), *stated, *_form_lines(model, found)]


def _tell_compared(model: Decoder, found: TrainingPlan) -> str:
    """Return how far off published steps were, as their code is where the model states that."""
    compared = planned_steps(is_stated=model.states_kernels)
    ratios = [exp(step.log_ratio) for step in compared]
    projects = len({step.group for step in compared})
    words = f"{len(ratios)} steps that {projects} projects published took {min(ratios):.2f} to "
    words += f"{max(ratios):.2f} times their forecast"
    words += ", made as their code is" if model.states_kernels else ""
    return words + (
        "" if found.is_compared else ", all on other GPUs: on this one none was ever compared"
    )


def _tell_recomputed(model: Decoder, way: Candidate) -> str:
    """Return what of a block is computed anew, and of how many where it is not all."""
    words = _RECOMPUTED[way.recompute]
    if way.recompute == SOME and model.recomputed_operations != EVERY_SECOND:
        words += f": {', '.join(model.recomputed_operations)}"
    return (
        f"{words}, {model.recomputed_blocks} blocks" if words and model.recomputed_blocks else words
    )


def _tell_between(amounts: tuple[float, float]) -> str:
    """Return an interval of bytes in GiB, as the table has it."""
    return "{:.1f} to {:.1f} GiB".format(*(each / 2**30 for each in amounts))


#: what a verdict answers to who asks whether a model fits
_ANSWERS = {FITS: "it fits", TIGHT: "it may fit", TOO_LARGE: "it does not fit"}


def _tell_fits(found: TrainingPlan) -> Sequence[str]:
    """Return the answer in a line: of the quickest way of each verdict, the surest one first.

    A way of a lesser verdict is named where it is quicker.
    """
    lines: list[str] = []
    quickest = float("inf")
    for verdict, words in _ANSWERS.items():
        for step in (each for each in found.steps if each.verdict == verdict):
            if step.forecast.time < quickest and (verdict != TOO_LARGE or not lines):
                of = f" of {found.memory / 2**30:.4g}" * (found.memory > 0)
                exposed = f"{step.forecast.exposure / step.forecast.time:.0%}"
                lines.append(
                    f"{words}: 80 % of such steps reserve {_tell_between(step.reserved)}{of}, and "
                    f"take {step.forecast.interval_words}, {exposed} exposed communication "
                    f"({step.way.name})"
                )
                quickest = step.forecast.time
            break
    if all(step.verdict == TOO_LARGE for step in found.steps):
        lines.append("this way holds least: take more GPUs, or GPUs with more memory")
    return lines


def _tell_parted(found: TrainingPlan) -> list[str]:
    """Return a line for groups of which some are whole in a node, and others in parts of two."""
    lines = {}
    for way in (step.way for step in found.steps):
        for what, size in (("experts", way.expert), ("a sequence", way.context)):
            span = size * way.tensor
            if size > 1 and found.node < way.ranks and found.node % span and span % found.node:
                whole = 1 << (found.node.bit_length() - 1)
                lines[what, size] = (
                    f"a node has {found.node} ranks, so that some groups of {size} that share "
                    f"{what} are parts of two: a topology with `node: {{ranks: {whole}}}` has "
                    "them whole"
                )
    return list(lines.values())


def _tell_filled(model: Decoder, found: TrainingPlan) -> list[str]:
    """Return a line for ways of FSDP that have more shards than there are experts to divide.

    fully_shard divides the first dimension of a parameter, that of experts, and fills it up.
    """
    times = {
        step.way.name: step.way.experts_shards * step.way.expert / model.experts
        for step in found.steps
        if model.experts and step.way.stages == 1 and step.way.zero > ZERO_1
    }
    filled = {name: each for name, each in times.items() if each > 1}
    if not filled:
        return []
    words = (
        f"{', '.join(filled)}: more shards than experts, so that fully_shard holds and gathers up "
        f"to {max(filled.values()):.3g} times as much of them, unless its `shard_placement_fn` is "
        "`Shard(1)` for experts, as in torchtitan and here"
    )
    return [words]


def _tell_open(model: Decoder, products: set[str], *, has_groups: bool) -> str:
    """Return what a model does not state of the code that trains it, and holds less by some."""
    of = {
        "expert_rows": model.experts > 0,
        "float8_inputs": FLOAT8 in products,
        "whole_rows": has_groups,
    }
    names = [
        name
        for name, (most, least) in RECIPE.items()
        if getattr(model, name) is None and of.get(name, True) and most != least
    ]
    stated = ", ".join(f"`{name}: {RECIPE[name][1]}`" for name in names)
    return (
        f"the least is of code that holds less than `tensors`: state what is true of yours of "
        f"{stated}"
    )


def _list_ratios(form: str) -> list[float]:
    """Return how many times their forecast the published steps of a form took."""
    return [each for several in form_ratios(form).values() for each in several]


def _form_lines(model: Decoder, found: TrainingPlan) -> list[str]:
    """Return how far off published steps of such forms were."""
    lines = []
    own = {form for step in found.steps for form in step.forms}
    for form in filter(own.__contains__, FORMS):
        compared = form_interval(form)
        words = f"of steps {FORMS[form]} none was compared with a measurement"
        if compared is not None:
            ratios = _list_ratios(form)
            words = (
                f"{compared.rows} steps {FORMS[form]} that {publishers(form)} published took "
                f"{min(ratios):.2f} to {max(ratios):.2f} times their forecast; for 80 % of such "
                f"steps it is {compared.low:.2f} to {compared.high:.2f} times"
            )
        lines.append(words)
    if model.experts:
        lines.append("tokens are spread evenly over the experts")
    return lines


def _tell_left_out(found: TrainingPlan) -> list[str]:
    """Return the lines on pipelines that fit and were not weighed."""
    if not found.long:
        return []
    (name, us), (other, other_us) = found.estimates
    pipelines = "1 pipeline fits" if found.long == 1 else f"{found.long} pipelines fit"
    return [
        f"{pipelines} that were not weighed, of more than {MOST_TURNS} microbatches a stage:",
        f"by estimate {name} takes {microseconds(us)}, and {other} {microseconds(other_us)}",
    ]
