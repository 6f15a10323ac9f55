"""The findings of `record --values`: trainings that are wrong in silence."""

from __future__ import annotations

from torch_scenarios.errors import Explanation


def _page(code: str, what: str, why: str, fix: str, *right: tuple[str, str]) -> Explanation:
    """Return a page; `right` are programs that do the same on purpose."""
    return Explanation(
        code=code, sort="finding of values", what=what, why=why, fix=fix, table=right
    )


VALUES: tuple[Explanation, ...] = (
    _page(
        "replicas_differ",
        "A parameter or buffer that the ranks keep as a replica is not equal on them any more.",
        "Replicas stay equal only where every rank does the same to them. A forward that writes a "
        "weight by its own batch, a gradient that one rank leaves out, a scaler or a schedule of "
        "each rank's own make them drift apart; the loss goes on falling, and every rank trains "
        "another model.",
        "find the first step at which they differ: what writes the parameter there must do the "
        "same on every rank.",
        ("local SGD", "weights are judged after each average alone"),
        ("FSDP, ZeRO", "a shard is not a replica"),
        ("BatchNorm", "DDP broadcasts running statistics at the next forward"),
        ("broadcast_buffers=False", "buffers that differ are a warning"),
        ("an average on rank 0", "it is judged where every rank calls it"),
        ("ensembles", "models whose gradients no rank reduces may differ"),
    ),
    _page(
        "gradients_differ",
        "Equal weights meet unequal gradients at the optimizer: nothing has synchronised them.",
        "A call that goes past DDP (`model.module(x)`), a last microbatch under `no_sync`, a "
        "parameter that a loop over gradients leaves out: each rank then steps by its own rows.",
        "reduce every gradient over the data-parallel ranks before the optimizer steps.",
        ("local SGD", "gradients are each rank's own on purpose"),
        ("ZeRO, FSDP", "each rank steps its own shard"),
        ("tensor parallelism", "gradients of the parts of one weight are not compared"),
    ),
    _page(
        "gradient_missing",
        "A parameter has a gradient on some ranks, and none on others, at the optimizer.",
        "A branch that depends on the data leaves a layer out on one rank; the optimizer skips it "
        "there, and momentum and weight decay go apart.",
        "let every rank use the parameter, or freeze it on all of them.",
        ("experts", "an expert without tokens has no gradient"),
        ("pipelines", "each stage has its own parameters"),
    ),
    _page(
        "same_samples",
        "Two data-parallel ranks train on the same rows, or a metric counts rows twice.",
        "Without a sampler every rank reads the whole dataset: n ranks do the work of one, and the "
        "batch is as large as one rank's. In an evaluation, a DistributedSampler pads the dataset "
        "until every rank has as many rows, and what is summed counts some of them twice.",
        "deal rows by `DistributedSampler(dataset)`; evaluate without padding.",
        ("tensor parallelism", "ranks of one model line must get the same rows"),
        ("sampling with replacement", "rows may come twice"),
        ("padding in training", "a few rows come twice in an epoch"),
        ("a trial", "fewer than three batches or 64 rows without a loader are a warning"),
    ),
    _page(
        "same_order_each_epoch",
        "Two epochs deal their rows in the same order, though the sampler shuffles.",
        "DistributedSampler draws its order from its seed and its epoch, and the epoch stays 0 "
        "until `set_epoch` is called.",
        "call `sampler.set_epoch(epoch)` at the beginning of each epoch.",
        ("shuffle=False", "the order is the same on purpose"),
    ),
    _page(
        "sum_of_replicas",
        "All ranks sum gradients that are equal already, and do not divide afterwards.",
        "The gradient becomes n times what one process has: the learning rate grows with the "
        "number of ranks.",
        "leave the second reduction out, or divide by the size of the group.",
        ("a division afterwards", "the result is the average"),
        ("counts, flags", "integers and constants are not judged"),
    ),
    _page(
        "no_gradient_through",
        "A collective takes a tensor with a graph, the loss depends on it, and no gradient goes "
        "through.",
        "The functions of `torch.distributed` are not part of a graph. What they write is a "
        "constant for `backward`: the gradient that belongs to the other ranks is lost, and the "
        "loss looks right.",
        "use `torch.distributed.nn.functional` where a gradient has to go through; `detach()` "
        "what is only shown.",
        ("metrics", "what is detached, or reduced after `backward`, is not judged"),
        ("autograd functions", "a `forward` of a torch.autograd.Function has its own backward"),
    ),
    _page(
        "result_dropped",
        "A collective in place writes into a temporary that no variable holds.",
        "`all_reduce(x.half())`, `all_reduce(x.contiguous())` of a tensor with strides: the call "
        "reduces a copy, which is gone when it returns; `x` is what it was.",
        "give the copy a name, reduce that, and use it afterwards.",
        ("views", "`x.view(-1)` and `x.data` share the memory of `x`"),
        ("constants", "`all_reduce(torch.ones(1))` as a first test of a group"),
    ),
    _page(
        "same_mask",
        "Data-parallel ranks draw one and the same dropout mask for different rows.",
        "One seed on all ranks makes the weights equal, and every later draw as well: the noise "
        "of n ranks is that of one.",
        "seed each data-parallel rank by itself once the weights are equal.",
        ("tensor parallelism", "ranks of one group must draw the same mask"),
    ),
    _page(
        "masks_differ",
        "Ranks of one tensor-parallel group drop different elements of the same activation.",
        "A replicated activation must stay equal on all ranks of the group; with masks of their "
        "own the ranks compute a model that no process has.",
        "seed the ranks of a tensor-parallel group alike for what is replicated.",
        ("activations that are split", "each part has a mask of its own"),
    ),
    _page(
        "norm_is_local",
        "Gradients are clipped by a norm that differs on ranks of one model.",
        "`clip_grad_norm_` sees the gradients of its own process. On ranks that hold parts of a "
        "model, or before gradients are reduced, each rank scales by another factor.",
        "sum the squares of the norms over the ranks of the model, and clip by the root.",
        ("DTensors, FSDP2", "`clip_grad_norm_` reduces their norm by itself"),
        ("a norm with no limit", "it only computes what the author reduces afterwards"),
        ("norms below the limit", "nothing is clipped"),
    ),
    _page(
        "units_crossed",
        "One collective joins parts of different parameters.",
        "Ranks go through their parameters in another order. Where the sizes fit, no backend "
        "notices: a weight consists of halves of two.",
        "go through parameters in one order on every rank.",
        ("tied weights", "two stages of a pipeline reduce one embedding by two names"),
    ),
    _page(
        "parameter_not_wrapped",
        "A parameter was made after DDP or the optimizer took its list; or the optimizer has other "
        "parameters than the model that is called, and none of them ever has a gradient.",
        "It is used, and has a gradient; the optimizer never steps it, or DDP never reduces it. An "
        "optimizer that is made before `fully_shard` steps what the model had then: nothing is "
        "trained, and that is an error.",
        "make the whole model first, then wrap it, then make the optimizer.",
        ("frozen parameters", "nothing steps them on purpose"),
    ),
    _page(
        "depends_on_dealing",
        "The gradient depends on which rank gets which rows of one and the same global batch.",
        "A data-parallel step computes what one process does only where that is not so. A mean "
        "over a rank's own tokens weighs those of a rank with few of them more; BatchNorm "
        "normalises by the rows that happen to be together; a gradient that nothing reduces is "
        "that of one rank's rows. `scenario record --redeal` runs the script twice more.",
        "divide by what all ranks have together; let a norm see the rows of all ranks.",
        ("dropout", "masks belong to places: turn it off by `--no-dropout`"),
        ("BatchNorm on purpose", "accept it by `--allow BatchNorm1d`"),
        ("a contrastive loss", "accept the module by its name, or gather with the gradient"),
    ),
    _page(
        "resumes_otherwise",
        "A run that goes on from its checkpoint computes something else than one without a stop.",
        "The weights are there, and something next to them is not: the optimizer's momentum, the "
        "schedule, the place in the data, the random generators. `scenario record --redeal resume` "
        "runs the script until a checkpoint is written, starts it again from that, and compares "
        "learning rates, rows, gradients and weights, step by step, with the run that was whole. "
        "What the runs write is kept aside.",
        "save and load the state that the message names, with the weights.",
        ("no checkpoint", "nothing is known where none is written between two steps"),
        ("dropout", "the state of the generator belongs to a checkpoint, too"),
    ),
    _page(
        "first_nan",
        "The first NaN or infinity: its rank, its module, its step and its line.",
        "After the next reduction every rank has it, and no rank shows where it came from. Where "
        "the ranks disagree, the data or the state of one of them is to blame.",
        "look at what enters the module there.",
        ("mixed precision", "a scaler of gradients skips steps with infinities on purpose"),
        ("masks", "negative infinity is a value of attention masks"),
    ),
    _page(
        "touched_in_flight",
        "A tensor of an asynchronous call is written or read before its wait.",
        "Between the call and the `wait` the backend may read or write the memory at any time.",
        "call `wait()` first.",
    ),
    _page(
        "not_initialised_alike",
        "A rank's initial parameter is not a part of any parameter of one process.",
        "`scenario parity` learns from the initial weights which part of the model each rank has. "
        "Where a script draws the parts themselves, the generator has drawn other numbers than in "
        "one process, and nothing can be compared.",
        "load one checkpoint in both; or draw the whole model from one seed, and take each rank's "
        "part of it.",
    ),
    _page(
        "wrong_arrangement",
        "The parts of a parameter that the ranks have do not make up the whole.",
        "Each part is one of the reference's, and a slice of it is on no rank: two ranks of a "
        "tensor-parallel group hold the same one.",
        "take the slice by the rank in the group.",
    ),
    _page(
        "random_in_forward",
        "Random numbers are drawn in the forward pass, so that two runs cannot be compared.",
        "One process draws another mask of dropout than several do.",
        "turn dropout off in both scripts.",
    ),
    _page(
        "in_place_of_strided",
        "Gloo reduces a tensor with strides wrongly: the first elements of its memory.",
        "`all_reduce`, `reduce` and `broadcast` of Gloo take the address and the number of "
        "elements, and not the strides.",
        "reduce a contiguous copy, and copy the result back.",
    ),
)
