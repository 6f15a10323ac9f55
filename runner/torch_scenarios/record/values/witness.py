"""The witness in the user's processes: what must agree between ranks, hashed as it passes.

Each rank writes hashes of its parameters, gradients, rows, random states and of what it hands to
collectives into a file of its own (`values-RANK.jsonl`); no collective of the program is added, and
no rank waits for another one. They are compared afterwards (:mod:`record.values.invariants`).

It runs in the user's own environment: the standard library and torch alone. It keeps no tensor
alive and changes no value.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection
from types import FunctionType, ModuleType, TracebackType
from typing import Any

import torch
import torch.nn.modules.module as modules
import torch.nn.utils.clip_grad
import torch.optim.optimizer as optimizers
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from torch_scenarios.record.evidence.frame import frame_of
from torch_scenarios.record.mapped_file import MappedFile
from torch_scenarios.record.scratch import Scratch
from torch_scenarios.record.values.carriage import Carriage
from torch_scenarios.record.values.deal import BatchDealer
from torch_scenarios.record.values.digest import (
    CaptureError,
    LeftGradients,
    digest,
    digest_text,
    is_captured,
    is_constant,
    local_part,
    plain_tensor,
    refuse_in_capture,
    row_digests,
    tensors_in,
)
from torch_scenarios.record.values.format.event import (
    VERSION,
    BackwardPass,
    CheckpointSave,
    CommunicationHook,
    DataParallelWrapper,
    DropoutCall,
    ExpertModule,
    FirstNan,
    FlatWrapper,
    GatheredModule,
    LateParameter,
    LoadedBatch,
    LoadedState,
    LoaderDraw,
    LossScale,
    ModelInput,
    ModuleLoad,
    NanLeftOut,
    NoiseDraw,
    NormClip,
    NumberRead,
    OptimizerLoad,
    OptimizerSettings,
    RandomDraw,
    StepClosure,
    UnitGather,
    UnreducedGradients,
    ValueClip,
    ValueEvent,
    WeightElements,
    WitnessFailure,
)
from torch_scenarios.record.values.parameters import Parameters
from torch_scenarios.record.values.store import ValueStore

#: rows of one batch that are hashed
MOST_ROWS = 1 << 14
#: frames whose variables are searched for generators
MOST_FRAMES = 24
#: what drops elements, by `p`
DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout")
#: what draws noise from a normal distribution, of `torch` and of its tensors
NOISES = ("randn", "randn_like", "normal"), ("normal_",)
#: elements from which drawn noise is not equal by chance, and turns in which it is seen
FEW_DRAWN, MOST_DRAWN_TURNS = 8, 8
#: seconds that a rank waits for the others before it ends a run that is only compared
STOP_S = 10.0
#: parameters of which it is known where they are made
MOST_BIRTHS = 1 << 14
#: number from which loaders are numbered
FIRST_LOADER = 10_000
#: parameters whose state is looked at where one is loaded
MOST_STATES = 256
#: places whose variables are searched for modules
MOST_LOOKS = 32


#: numbers that a script reads out of tensors, of which a comparison knows
MOST_NUMBERS = 2000
#: settings of an optimizer that are compared, and those that are compared at each step
_PLAIN, _RATES = (bool, int, float, str), ("lr", "initial_lr")
#: failures of the witness itself after which it sees nothing more
MOST_FAILURES = 8


#: torch's pipelines, how they learn from memory that nothing has set which shapes a stage passes
#: on, and how deep modules may lie in a stage
PIPELINES = "torch.distributed.pipelining.stage"
TRIALS = frozenset(
    {"_forward_metadata_inference", "_backward_metadata_inference", "_shape_inference"}
)
MOST_FRAMES = 64


#: what writes a line as JSON: there is no circle in it, so that none is looked for
_encode = json.JSONEncoder(check_circular=False).encode


class _Guard:
    """Lets no failure of the witness raise in the user's script: the record gets a line of it.

    What it looks at inside of a `torch.func` transform is computed outside of that, and nothing is
    looked at while a CUDA graph is captured.
    """

    def __init__(self, torch: Any, put: Callable[[Any], None]) -> None:
        """Write failures with `put`."""
        self._functions, self._put = torch._C._functorch, put
        self._left: list[Any] = []
        self.failures = 0

    def __enter__(self) -> None:
        """Begin what may not raise."""
        outside = None
        if self._functions.peek_interpreter_stack() is not None:
            outside = temporarily_clear_interpreter_stack()
            outside.__enter__()
        self._left.append(outside)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Write down what was raised, and go on; what ends a process goes through."""
        if (outside := self._left.pop()) is not None:
            outside.__exit__(None, None, None)
        if kind is None or not issubclass(kind, Exception):
            return False
        if issubclass(kind, CaptureError):
            return True
        self.failures += 1
        with contextlib.suppress(Exception):
            assert trace is not None
            while trace.tb_next is not None:
                trace = trace.tb_next
            code = trace.tb_frame.f_code
            where = f"{os.path.basename(code.co_filename)}:{trace.tb_lineno}"
            words = f"{kind.__name__}: {error}"[:200]
            self._put(WitnessFailure(words, f"{code.co_name} ({where})"))
        return True


class _Depth(threading.local):
    """How deep a thread is inside of modules, and inside of optimizers."""

    module = 0
    optimizer = 0


class ValueWitness:
    """What one process sees of its values; one a process, next to its recorder."""

    def __init__(
        self, recorder: Any, is_foreign: Callable[[str], bool], settings: dict[str, Any]
    ) -> None:
        """Open the rank's file, and put the hooks in their place."""
        self.torch: Any = torch
        self.recorder = recorder
        self.settings = settings
        about = {"scenario_values": VERSION, "rank": recorder.about["rank"], **settings}
        path = os.path.join(recorder.folder, f"values-{recorder.about['rank']:05d}.jsonl")
        self._file = MappedFile(path)
        self.put(about)
        self.guard = _Guard(torch, self.put)
        self.parameters = Parameters(torch, self.put, is_foreign)
        self.is_foreign = is_foreign
        self.depth = _Depth()
        #: turns: a forward that follows a step of an optimizer begins the next one
        self.turn = 0
        self._stepped = False
        #: whether an optimizer has ever stepped, and whether a backward pass came since a step
        self._has_optimizer = self._passed = False
        self.in_backward = 0
        self.scaled = False
        self._nan = self._is_nan_used = False
        self._late = []
        self._looked: set[int] = set()
        self._reloaded = {}
        self._experts: set[tuple[int, type]] = set()
        self._wrapped, self._sharded, self._own, self._units = {}, {}, [], []
        #: whether a loader has given a batch since the last step; rows are seen there
        self._loaded = False
        self._keeps_rows = bool(settings.get("bytes"))
        self._optimizers: dict[int, tuple[Any, int]] = {}
        #: optimizers that deal their parameters to those of all ranks
        self._dealers: list[Any] = []
        #: line at which loaders are read -> their dataset and sampler, and the epoch of each
        self._loaders: dict[str, list[list[Any]]] = {}
        self.carriage = Carriage(self)
        self.left = LeftGradients(self.parameters, self.put)
        #: number of an optimizer -> what was written of its settings last
        self._settled: dict[int, OptimizerSettings] = {}
        #: hears of what passes, so that it may keep values: modules, losses, gradients, weights
        self.listeners: list[Any] = []
        if settings.get("bytes"):
            self.listeners.append(ValueStore(self, settings["steps"], settings["bytes"]))
        self.dealing: Any = None
        if settings.get("redeal"):
            plan = settings.get("plan", "")
            self.dealing = BatchDealer(self, recorder.folder, recorder.about["rank"], plan)
        if settings.get("stop") or settings.get("scratch") or settings.get("aside"):
            self._keep_files()
        self._install()

    def _keep_files(self) -> None:
        """Keep what the script writes aside: it runs once more, for a comparison."""
        folder = self.recorder.folder
        own = (os.getcwd(), os.path.dirname(os.path.abspath(sys.argv[0])))
        copies = self.settings.get("scratch") or os.path.join(folder, "scratch")
        Scratch(copies, free=(folder,), own=own).install()

    @property
    def is_past(self) -> bool:
        """Whether the steps are over whose values are kept, or before which the run is to end."""
        if until := self.settings.get("until"):
            return self.turn + self._stepped >= int(until)
        return any(each.count >= self.settings["steps"] for each in self.listeners)

    def _stop(self) -> None:
        """End the process, once all ranks have come so far or some time has gone by."""
        folder, world = self.recorder.folder, int(self.recorder.about["world_size"])
        name = f"values-{self.recorder.about['rank']:05d}.stopped"
        with open(os.path.join(folder, name), "w", encoding="ascii"):
            pass
        until = time.monotonic() + STOP_S
        while time.monotonic() < until:
            if sum(each.endswith(".stopped") for each in os.listdir(folder)) >= world:
                break
            time.sleep(0.02)
        self.recorder.end(0)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    @property
    def rests(self) -> bool:
        """Whether nothing is seen: torch compiles, captures, tries, or the witness fails often."""
        return (
            self.guard.failures >= MOST_FAILURES
            or is_captured()
            or bool(self.torch.compiler.is_compiling())
            or _find_stage(TRIALS) is not None
        )

    # ------------------------------------------------------------------ its file

    def put(self, entry: Any) -> None:
        """Append a line: an event, or what is written as it is."""
        line = entry.as_line() if isinstance(entry, ValueEvent) else entry
        self._file.append(f"{_encode(line)}\n".encode())

    def place(self, frame: Any) -> int:
        """Return the number of the place in the user's files that a frame belongs to."""
        return int(self.recorder.sites.of(frame).number)

    def end(self) -> None:
        """Write nothing more."""
        with self.guard:
            self.carriage.end()
            for each in self.listeners:
                each.end()
        with contextlib.suppress(Exception):
            self._file.close()

    # ------------------------------------------------------------------ hooks

    def _install(self) -> None:
        """Hook the witness into modules, optimizers, and each function of torch that it watches.

        A watch that fails, since a version of torch lacks what it wraps, costs its own facts alone.
        """

        def before_module(module: Any, inputs: Any) -> None:
            if not self.rests:
                with self.guard:
                    self._enter(module, inputs)

        def after_module(module: Any, inputs: Any, output: Any) -> Any:
            if self.rests:
                return None
            with self.guard:
                self._leave(module, inputs, output)
                return self._disturb(module, output)
            return None

        def before_step(optimizer: Any, *_: Any) -> None:
            with self.guard:
                self._see_before_step(optimizer)

        def after_step(optimizer: Any, *_: Any) -> None:
            with self.guard:
                self._see_after_step(optimizer)

        def register(module: Any, name: str, parameter: Any) -> None:
            with self.guard:
                self._see_registration(module, name, parameter)

        modules.register_module_forward_pre_hook(before_module)
        modules.register_module_forward_hook(after_module, always_call=True)
        optimizers.register_optimizer_step_pre_hook(before_step)
        optimizers.register_optimizer_step_post_hook(after_step)
        modules.register_module_parameter_registration_hook(register)
        for watch in (
            functools.partial(self._watch_optimizers, optimizers.Optimizer),
            self._watch_backward,
            self._watch_loaders,
            self._watch_ddp,
            self._watch_clipping,
            self._watch_dropout,
            self._watch_noise,
            self._watch_scaler,
            self._watch_fsdp,
            self._watch_flat_fsdp,
            self._watch_loading,
            self._watch_saving,
            self._watch_numbers,
        ):
            with self.guard:
                watch()

    # ------------------------------------------------------------------ modules

    def _enter(self, module: Any, inputs: Any) -> None:
        depth = self.depth.module
        self.depth.module = depth + 1
        if depth == 0 and not self.in_backward:
            grad = self.torch.is_grad_enabled()
            with self.torch.no_grad():
                self._enter_root(module, inputs, grad=grad)
        if module._parameters and not self.in_backward:
            if self.carriage.exchanges % 2:
                self._know_place(module, ExpertModule)
            if self.carriage.is_gathered:
                self._know_place(module, GatheredModule)
        if self.carriage.pending:
            self.carriage.reads(inputs, "a module")
        for each in self.listeners:
            each.enter(module, inputs, depth)

    def _know_place(self, module: Any, kind: type[ExpertModule | GatheredModule]) -> None:
        """Write down the parameters of a module that works on what other ranks have sent."""
        if (id(module), kind) not in self._experts:
            self._experts.add((id(module), kind))
            own = [self.parameters.find(each) for each in module._parameters.values()]
            self.put(kind(tuple(each.number for each in own if each is not None)))

    def _enter_root(self, module: Any, inputs: Any, *, grad: bool) -> None:
        """Note the start of a forward pass, with which a turn of the training begins.

        What has happened to the weights since the last one is found here: a write, a load, a
        broadcast.
        """
        if self.settings.get("stop") and self.is_past:
            self._stop()
        frame = frame_of(3)
        self._end_turn()
        if self.turn == 0 and self.settings.get("init"):
            self.parameters.register_root(module, frame, self.place(frame))
            self.parameters.load(self.settings["init"])
        place = self.place(frame)
        root = self.parameters.register_root(module, frame, place)
        self._write_late_parameters(module, place)
        self._see_unsharded()
        self.parameters.distrust(self.parameters.at_rest(module))
        changed = self._rehash()
        self._measure(changed)
        if module.training and grad:
            self._see_written_step(place, changed)
        if module.training and grad and (self._keeps_rows or not self._loaded):
            tensor = self.torch.Tensor
            own = [each for each in inputs if isinstance(each, tensor) and self._is_data(each)]
            stage = _find_stage(("forward_one_chunk",))
            is_first = stage is None or getattr(stage, "is_first", True)
            # what a graph has computed is no data, nor what another stage has sent
            if (own or not inputs) and is_first:
                rows = row_digests(own, tensor)[:MOST_ROWS]
                shapes = tuple(tuple(local_part(each).shape[1:]) for each in own)
                self.put(ModelInput(self.turn, tuple(rows), root, place, shapes))
        if module.training and grad and not self._loaded and self._generator is None:
            self._mark_draws()
        self.put(
            [
                "f",
                self.turn,
                root,
                place,
                int(module.training),
                int(grad),
                changed,
            ]
        )

    def _is_data(self, tensor: Any) -> bool:
        """Whether a tensor is data: no graph has computed it, and no other stage has sent it.

        A stage sends back the gradient of what it receives, which requires one; data does not.
        """
        is_sent = tensor.requires_grad and (*tensor.shape,) in self.carriage.received
        return tensor.grad_fn is None and not is_sent

    def _find_own_generators(self, frame: Any) -> list[Any]:
        """Return the generators that variables of the script's frames hold, or fields of `self`."""
        kinds = self._kinds_of_generators()
        found: dict[int, Any] = {}
        for _ in range(MOST_FRAMES):
            if frame is None:
                break
            if not self.is_foreign(frame.f_code.co_filename):
                scopes = [frame.f_locals, frame.f_globals]
                scopes.append(getattr(frame.f_locals.get("self"), "__dict__", {}))
                own = [each for scope in scopes for each in [*scope.values()]]
                found.update({id(each): each for each in own if isinstance(each, kinds)})
            frame = frame.f_back
        return [*found.values()]

    def _kinds_of_generators(self) -> tuple[Any, ...]:
        numpy = sys.modules.get("numpy")
        return (self.torch.Generator, *([numpy.random.Generator] if numpy is not None else ()))

    def _state_of(self, generator: Any) -> str:
        if isinstance(generator, self.torch.Generator):
            return digest(generator.get_state())
        return digest_text(repr(generator.bit_generator.state))

    _own: list[tuple[Any, str]]

    def _mark_draws(self) -> None:
        """Know the states of the generators, where a batch is given or a model is called."""
        self._generator = self._states_of_generators()
        own = self._find_own_generators(frame_of(3))
        self._own = [(each, self._state_of(each)) for each in own]

    def _states_of_generators(self) -> dict[str, str]:
        """Return the state of each generator that a forward pass may draw from, by its library."""
        torch = self.torch
        found = {"torch": digest(torch.get_rng_state())}
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            found["cuda"] = digest(torch.cuda.get_rng_state())
        if "random" in sys.modules:
            found["random"] = digest_text(repr(sys.modules["random"].getstate()))
        if "numpy" in sys.modules:
            _, keys, place, *_ = sys.modules["numpy"].random.get_state()
            found["numpy"] = digest_text(f"{place} {keys.tobytes().hex()}")
        return found

    def _see_draws(self, place: int) -> None:
        """Write down that random numbers were drawn since: on each rank others, where it means it.

        Dropout is seen by itself.
        """
        before, self._generator = self._generator, None
        if before is not None:
            now = self._states_of_generators()
            for at, (own, state) in enumerate(self._own):
                before[f"own {at}"], now[f"own {at}"] = state, self._state_of(own)
            self._own = []
            drawn = [name for name, state in before.items() if now[name] != state]
            if drawn:
                was = tuple(before[name] for name in drawn)
                self.put(RandomDraw(self.turn, place, was, tuple(now[name] for name in drawn)))

    _generator: Any = None

    def _end_turn(self) -> None:
        if self._stepped:
            self._stepped = False
            self.turn += 1

    def _see_written_step(self, place: int, changed: list[tuple[int, str]]) -> None:
        """See that a script without an optimizer has written weights since a backward pass."""
        if self._has_optimizer or self._is_stepped({number for number, _ in changed}):
            return
        if self._passed and changed:
            self.put(["o", self.turn, -1, self._passed_at, [], [], [], changed])
            self._stepped = True
            for each in self.listeners:
                each.written({number for number, _ in changed})
            self._end_turn()
        self._passed = False
        for each in self.listeners:
            each.may_write()

    def _is_stepped(self, numbers: set[int]) -> bool:
        """Whether an optimizer that is still to step has one of some parameters."""
        return any(
            (known := self.parameters.find(tensor)) is not None and known.number in numbers
            for reference, _ in self._optimizers.values()
            if (optimizer := reference()) is not None
            for group in optimizer.param_groups
            for tensor in group["params"]
        )

    _passed_at = -1

    def know_modules(self, frame: Any, place: int) -> None:
        """Know the modules that the variables of a call's frames hold: once a place.

        And the parameters of no module that an optimizer has.
        """
        if place in self._looked or len(self._looked) >= MOST_LOOKS:
            return
        self._looked.add(place)
        with self.torch.no_grad():
            self.parameters.register_scopes(frame, place)
            for reference, _ in self._optimizers.values():
                if (optimizer := reference()) is not None:
                    self._know_strays(optimizer, frame, place)

    def _know_strays(self, optimizer: Any, frame: Any, place: int) -> None:
        for at, group in enumerate(optimizer.param_groups):
            for within, tensor in enumerate(group["params"]):
                if self.parameters.find(tensor) is None:
                    name = self.parameters.name_stray(tensor, frame, f"param[{at}.{within}]")
                    self.parameters.register(tensor, name, "parameter", place, -1)

    def _rehash(self) -> list[tuple[int, str]]:
        """Return the parameters that were written since they were hashed last, with their hash."""
        known = [*self.parameters.known.values()]
        return [(each.number, each.hash) for each in known if self.parameters.rehash(each)]

    def _measure(self, changed: list[tuple[int, str]]) -> None:
        """Write down elements of weights that no optimizer has written, after a backward pass.

        They tell weights that are put back up to rounding from others.
        """
        if not self._passed or not self._optimizers or self.turn >= MOST_DRAWN_TURNS:
            return
        numbers = {number for number, _ in changed}
        known = [each for each in self.parameters.known.values() if each.number in numbers]
        if known:
            elements = tuple((each.number, *self.parameters.sample(each)) for each in known)
            self.put(WeightElements(self.turn, elements))

    def _leave(self, module: Any, inputs: Any, output: Any) -> None:
        self.depth.module = depth = max(self.depth.module - 1, 0)
        if not self._nan and not self.in_backward and not module._modules:
            self._look_for_nan(module, output)
        for each in self.listeners:
            each.leave(module, output, depth)

    def _disturb(self, module: Any, output: Any) -> Any:
        """Return a module's output as another rounding would leave it, where that is measured."""
        seed = self.settings.get("disturb")
        is_one = isinstance(output, self.torch.Tensor) and not module._modules
        is_one = is_one and plain_tensor(output) is output
        if seed is None or not is_one or not output.is_floating_point():
            return None
        if self._noise is None:
            self._noise = self.torch.Generator().manual_seed(int(seed))
        draw = self.torch.rand(output.shape, generator=self._noise).to(output.device)
        eps = self.torch.finfo(output.dtype).eps
        return output * (1 + eps * (draw.to(output.dtype) - 0.5))

    _noise: Any = None

    def _look_for_nan(self, module: Any, output: Any) -> None:
        for tensor in tensors_in(output, self.torch.Tensor):
            if tensor.is_floating_point() and not tensor.is_meta and has_nan(self.torch, tensor):
                self._nan = True
                name = type(module).__name__
                self.put(FirstNan(self.turn, "output", name, self._place_here()))
                return

    def _place_here(self) -> int:
        return self.place(frame_of(2))

    # ------------------------------------------------------------------ optimizers

    def _watch_optimizers(self, kind: Any) -> None:
        begin = kind.__init__

        @functools.wraps(begin)
        def begin_optimizer(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            begin(optimizer, *args, **kwargs)
            with self.guard:
                if type(optimizer).__name__ != "ZeroRedundancyOptimizer":
                    self._number(optimizer)
                else:
                    self._dealers.append(weakref.ref(optimizer))

        kind.__init__ = begin_optimizer

    def _number(self, optimizer: Any) -> int:
        known = self._optimizers.get(id(optimizer))
        if known is not None and known[0]() is optimizer:
            return known[1]
        number = 1 + max((each for _, each in self._optimizers.values()), default=-1)
        self._optimizers[id(optimizer)] = (weakref.ref(optimizer), number)
        return number

    def _see_registration(self, module: Any, name: str, parameter: Any) -> None:
        """See where a parameter is made, and whether an optimizer was made before it."""
        if parameter is not None and len(self.parameters.births) < MOST_BIRTHS:
            self.parameters.births[id(parameter)] = (
                weakref.ref(parameter),
                self.place(frame_of(2)),
            )
        if parameter is not None and self._optimizers and parameter.requires_grad:
            self._late.append(weakref.ref(parameter))

    _late: list[Any]

    def _write_late_parameters(self, module: Any, place: int) -> None:
        """Write down parameters that no optimizer has, made after one: once a module."""
        if not self._late:
            return
        waiting, self._late = self._late, []
        alive = [each() for each in waiting]
        own = {id(each) for each in module.parameters()}
        held = {
            id(p)
            for reference in (*(each for each, _ in self._optimizers.values()), *self._dealers)
            if (optimizer := reference()) is not None
            for group in optimizer.param_groups
            for p in group["params"]
        }
        if not any(id(each) in held for each in module.parameters()):
            return
        for each in alive:
            if each is not None and each.requires_grad and id(each) in own - held:
                known = self.parameters.find(each)
                if known is not None:
                    self.put(LateParameter(known.number, "optimizer", place))

    def _see_before_step(self, optimizer: Any, *_: Any) -> None:
        """Note each gradient before an optimizer steps; one within another is passed over."""
        self.depth.optimizer += 1
        if self.depth.optimizer > 1:
            return
        torch = self.torch
        frame = frame_of(2)
        place = self.place(frame)
        self._loaded = False
        self.know_modules(frame, place)
        with torch.no_grad():
            changed = self._rehash()
            self._measure(changed)
            gradients = []
            self._leave_nan_out(place)
            self._know_strays(optimizer, frame, place)
            for group in optimizer.param_groups:
                for tensor in group["params"]:
                    known = self.parameters.find(tensor)
                    assert known is not None
                    gradient = tensor.grad
                    details = None
                    if gradient is not None:
                        plain = local_part(gradient)
                        details = digest_text("meta") if plain.is_meta else digest(gradient)
                        self._look_at_gradient(known.name, plain, place)
                    gradients.append([known.number, details])
            self.carriage.before_step(optimizer, place)
            self.left.meet(gradients)
            self._see_loaded_state(optimizer)
        self._see_settings(optimizer)
        if names := self._find_unreduced():
            self.put(UnreducedGradients(self.turn, place, tuple(names)))
        rates = [float(group.get("lr", 0.0)) for group in optimizer.param_groups]
        self._step = ["o", self.turn, self._number(optimizer), place, rates, gradients, changed]
        for each in self.listeners:
            each.before_step(optimizer)

    def _see_settings(self, optimizer: Any) -> None:
        """Write down what kind an optimizer is and what it is set to, where that is new."""
        groups = tuple(
            {k: v for k, v in group.items() if isinstance(v, _PLAIN) and k not in _RATES}
            for group in optimizer.param_groups
        )
        number = self._number(optimizer)
        now = OptimizerSettings(number, type(optimizer).__name__, groups)
        if self._settled.get(number) != now:
            self._settled[number] = now
            self.put(now)

    def _look_at_gradient(self, name: str, gradient: Any, place: int) -> None:
        if self._nan or self.scaled or not gradient.is_floating_point():
            return
        if has_nan(self.torch, gradient):
            self._nan = True
            self.put(FirstNan(self.turn, "gradient", name, place))

    def _leave_nan_out(self, place: int) -> None:
        """Write down that a step uses gradients that are numbers, though a value was none before.

        A script may leave out what an overflow, or a broken row, has made.
        """
        if not self._nan or self._is_nan_used:
            return
        held = (each.tensor for each in self.parameters.known.values())
        left = [each.grad for each in held if each is not None and each.grad is not None]
        parts = [local_part(each) for each in left]
        self._is_nan_used = any(not each.is_meta and has_nan(self.torch, each) for each in parts)
        if not self._is_nan_used:
            self._nan = False
            self.put(NanLeftOut(self.turn, place))

    def _look_at_losses(self, losses: Any, place: int) -> None:
        if self._nan or self.scaled:
            return
        for each in losses:
            if not each.is_meta and has_nan(self.torch, local_part(each.detach())):
                self._nan = True
                self.put(FirstNan(self.turn, "loss", "", place))
                return

    def _see_after_step(self, optimizer: Any, *_: Any) -> None:
        self.depth.optimizer = max(self.depth.optimizer - 1, 0)
        if self.depth.optimizer:
            return
        with self.torch.no_grad():
            self.parameters.distrust(self.parameters.in_training())
            self.put([*self._step, self._rehash()])
        self._stepped = self._has_optimizer = True
        self.carriage.forget()
        for each in self.listeners:
            each.after_step(optimizer)

    # ------------------------------------------------------------------ backward

    def _watch_backward(self) -> None:
        """Note each backward pass, and what lies in the gradients after it."""
        graph = self.torch.autograd.graph
        run = graph._engine_run_backward

        def backward(roots: Any, *args: Any, **kwargs: Any) -> Any:
            place = -1
            if self.rests:
                return run(roots, *args, **kwargs)
            with self.guard:
                place = self.place(frame_of(1))
                if not self._is_derivative(args):
                    self._see_backward(
                        roots, place, accumulates=bool(kwargs.get("accumulate_grad"))
                    )
            self.in_backward += 1
            try:
                return run(roots, *args, **kwargs)
            finally:
                self.in_backward -= 1
                self.carriage.forget_gradients()
                with self.guard:
                    if kwargs.get("accumulate_grad") and not self.in_backward:
                        with self.torch.no_grad():
                            self.left.see(self.turn, place)
                    for each in self.listeners:
                        each.after_backward()

        graph._engine_run_backward = backward
        self.torch.autograd._engine_run_backward = backward

    def _see_backward(self, roots: Any, place: int, *, accumulates: bool) -> None:
        own = all(isinstance(each, self.torch.Tensor) and each.numel() == 1 for each in roots)
        self.put(BackwardPass(self.turn, place, own))
        if own:
            self._look_at_losses(roots, place)
        if self.depth.optimizer:
            self.put(StepClosure(self.turn, place))
        if accumulates:
            self.left.begin(self.turn, place)
            self._see_draws(place)
        self._passed, self._passed_at = True, place
        self.carriage.before_backward(roots)
        for each in self.listeners:
            each.before_backward(roots)

    def _is_derivative(self, args: tuple[Any, ...]) -> bool:
        """Whether a pass computes a part of a loss that is still to come, and no gradient of one.

        As `torch.autograd.grad(u.sum(), x, create_graph=True)` does, of a model's output by its
        input. What `torch.func` differentiates are its own weights.
        """
        if len(args) < 4 or not args[2] or not args[3]:
            return False
        is_wrapped = self.torch._C._functorch.is_functorch_wrapped_tensor
        inputs = [each for each in args[3] if isinstance(each, self.torch.Tensor)]
        return not any(
            self.parameters.find(each) is not None or is_wrapped(each) for each in inputs
        )

    # ------------------------------------------------------------------ rows of loaders

    def _watch_loaders(self) -> None:
        """Note which rows each DataLoader draws, in their order, and from which generators."""
        from torch.utils.data import dataloader

        kind: Any = dataloader._BaseDataLoaderIter
        begin, step, index = kind.__init__, kind.__next__, kind._next_index

        def begin_iterator(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            with self.guard:
                iterator._scenario = self._loader(loader)
            begin(iterator, loader, *args, **kwargs)

        def index_rows(iterator: Any) -> Any:
            found = index(iterator)
            with self.guard:
                seen = getattr(iterator, "_scenario", None)
                if seen is not None and self.dealing is not None and _are_numbers(found):
                    at = seen["number"], seen["epoch"], seen["drawn"]
                    found = self.dealing.indices(*at, found)
                if seen is not None:
                    seen["drawn"] += 1
                    seen["indices"].append(found)
                    if self.turn < MOST_DRAWN_TURNS:
                        seen["held"] = [*seen["own"], *self._find_own_generators(frame_of(2))]
                        seen["states"] = self._states_of(seen["held"])
            return found

        def take_batch(iterator: Any) -> Any:
            batch = step(iterator)
            with self.guard:
                seen = getattr(iterator, "_scenario", None)
                if seen is not None:
                    batch = self._batch(seen, batch)
            return batch

        kind.__init__, kind.__next__, kind._next_index = begin_iterator, take_batch, index_rows

    def _loader(self, loader: Any) -> dict[str, Any]:
        """Return which loader begins an epoch, the how manieth.

        Loaders of one dataset that are made anew for each epoch, at one line, are one. The number
        is made of that line, so that it is the same on ranks that have other loaders elsewhere.
        """
        about = describe_loader(loader)
        place = self._place_of_user()
        held = (loader.dataset, loader.sampler)
        line = f"{self._line_of_user()} {about['dataset']} {about['sampler']}"
        alike = self._loaders.setdefault(line, [])
        at = next((n for n, (own, _) in enumerate(alike) if own[0] is held[0]), len(alike))
        if at == len(alike):
            alike.append([held, -1])
            self.put(["l", _number_of(line, at), place, about])
        alike[at][1] += 1
        number, epoch = _number_of(line, at), alike[at][1]
        seen = {"number": number, "epoch": epoch, "batch": 0, "drawn": 0, "indices": []}
        return {**seen, "own": self._generators_of(loader), "held": [], "states": None}

    def _generators_of(self, loader: Any) -> list[Any]:
        """Return the generators that a loader's dataset, its transform and its collation hold."""
        holders = [loader.collate_fn, loader.dataset, getattr(loader.dataset, "transform", None)]
        kinds = self._kinds_of_generators()
        values = [value for each in holders for value in getattr(each, "__dict__", {}).values()]
        return [each for each in values if isinstance(each, kinds)]

    def _states_of(self, own: list[Any]) -> dict[str, str]:
        """Return the states of all generators that a batch may draw from."""
        found = self._states_of_generators()
        return found | {f"own {at}": self._state_of(each) for at, each in enumerate(own)}

    def _line_of_user(self) -> str:
        """Return the file and the line of the user's that is running."""
        frame: Any = frame_of(3)
        while frame is not None and self.is_foreign(frame.f_code.co_filename):
            frame = frame.f_back
        return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""

    def _place_of_user(self) -> int:
        return self.place(frame_of(3))

    def _batch(self, seen: dict[str, Any], batch: Any) -> Any:
        self._loaded = True
        indices = seen["indices"].pop(0) if seen["indices"] else None
        before, seen["states"] = seen["states"], None
        now = self._states_of(seen["held"]) if before is not None else None
        if now is not None and before != now:
            drawn = tuple(state for name, state in before.items() if now.get(name) != state)
            self.put(LoaderDraw(self.turn, self._place_of_user(), drawn))
        numbers = tuple(map(int, indices or ())) if _are_numbers(indices) else None
        at = seen["number"], seen["epoch"], seen["batch"]
        if self.dealing is not None:
            batch = self.dealing.batch(*at, batch)
        rows = row_digests(batch, self.torch.Tensor)[:MOST_ROWS]
        place = self._place_of_user()
        self.put(LoadedBatch(*at, place, tuple(rows), numbers))
        self._mark_draws()
        seen["batch"] += 1
        return batch

    def see_batch(self, loader: int, number: int, place: int, batch: list[Any]) -> list[Any]:
        """Return a batch that the script names itself, and write down its rows."""
        self._loaded = True
        if number == 0:
            about = {"sampler": "", "dataset": "", "rows": -1, "batch_size": None}
            self.put(["l", loader, place, {**about, "replacement": False, "shuffle": False}])
        if self.dealing is not None:
            batch = self.dealing.batch(loader, 0, number, batch)
        rows = row_digests(batch, self.torch.Tensor)[:MOST_ROWS]
        self.put(LoadedBatch(loader, 0, number, place, tuple(rows), None))
        self._mark_draws()
        return batch

    # ------------------------------------------------------------------ wrappers of models

    def _watch_ddp(self) -> None:
        """Note which modules DDP wraps, and its communication hooks."""
        from torch.nn.parallel import DistributedDataParallel

        kind: Any = DistributedDataParallel
        begin, hook = kind.__init__, kind.register_comm_hook

        @functools.wraps(begin)
        def begin_wrapper(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            begin(wrapper, *args, **kwargs)
            with self.guard:
                self._know_wrapper(wrapper, frame_of(1))

        @functools.wraps(hook)
        def note_hook(wrapper: Any, state: Any, function: Any) -> Any:
            with self.guard:
                for each in _list_hooks(function, self.is_foreign):
                    code = _code_of(each)
                    if code is not None and not self.is_foreign(code.co_filename):
                        self.carriage.hooks.add(code)
                    name = getattr(each, "__qualname__", type(each).__name__)
                    self.put(CommunicationHook(str(name)))
            return hook(wrapper, state, function)

        self._watch_join()
        forward = kind.forward

        @functools.wraps(forward)
        def run_forward(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.rests:
                with self.guard:
                    self._see_unwrapped(wrapper)
            return forward(wrapper, *args, **kwargs)

        kind.__init__, kind.register_comm_hook, kind.forward = begin_wrapper, note_hook, run_forward

    def _know_wrapper(self, wrapper: Any, frame: Any) -> None:
        """Write down which parameters a DistributedDataParallel keeps equal, on which ranks."""
        place = self.place(frame)
        number = self.parameters.register_root(wrapper, frame, place)
        ranks = tuple(self.recorder.dist.get_process_group_ranks(wrapper.process_group))
        ignored = set(getattr(wrapper, "parameters_to_ignore", ()) or ())
        own = []
        for name, each in wrapper.module.named_parameters():
            known = self.parameters.find(each)
            if known is not None and name not in ignored:
                own.append(known.number)
        buffers = tuple(
            known.number
            for each in wrapper.module.buffers()
            if (known := self.parameters.find(each)) is not None
        )
        self._wrapped[id(wrapper)] = {id(each) for each in wrapper.parameters()}
        keeps = bool(wrapper.broadcast_buffers)
        changed = tuple(self._rehash())
        self.put(DataParallelWrapper(number, ranks, place, keeps, tuple(own), buffers, changed))

    def _watch_join(self) -> None:
        """See that ranks join with uneven inputs: they hold the same again at the end."""
        from torch.distributed.algorithms.join import Join

        kind: Any = Join
        begin = kind.__init__

        @functools.wraps(begin)
        def begin_join(*args: Any, **kwargs: Any) -> None:
            with self.guard:
                self.put(CommunicationHook("Join"))
            begin(*args, **kwargs)

        kind.__init__ = begin_join

    _wrapped: dict[int, set[int]]

    def _see_unwrapped(self, wrapper: Any) -> None:
        known = self._wrapped.get(id(wrapper))
        if known is None:
            return
        for each in wrapper.parameters():
            if id(each) not in known and each.requires_grad:
                known.add(id(each))
                found = self.parameters.find(each)
                if found is not None:
                    self.put(LateParameter(found.number, "DistributedDataParallel", -1))

    def _watch_fsdp(self) -> None:
        """Note each unit that `fully_shard` gathers, and the parameters that it shards."""
        try:
            from torch.distributed.fsdp._fully_shard import _fsdp_param_group
        except ImportError:
            return
        module: Any = _fsdp_param_group
        gather = module.foreach_all_gather

        @functools.wraps(gather)
        def gather_unit(parameters: Any, group: Any, *args: Any, **kwargs: Any) -> Any:
            with self.guard:
                names = tuple(str(each._param_fqn or "") for each in parameters)
                ranks = tuple(self.recorder.dist.get_process_group_ranks(group))
                self.put(UnitGather(self.turn, ranks, names, self.place(frame_of(1))))
                for each in parameters:
                    self._sharded[id(each)] = weakref.ref(each)
            return gather(parameters, group, *args, **kwargs)

        module.foreach_all_gather = gather_unit
        kind: Any = module.FSDPParamGroup
        begin = kind.__init__

        @functools.wraps(begin)
        def begin_unit(unit: Any, *args: Any, **kwargs: Any) -> None:
            begin(unit, *args, **kwargs)
            with self.guard:
                ranks = tuple(int(each) for each in unit.mesh_info.mesh.mesh.flatten())
                for each in unit.modules:
                    known = {id(parameter) for parameter in each.parameters()}
                    self._units.append((weakref.ref(each), known, ranks))

        kind.__init__ = begin_unit

    def _see_unsharded(self) -> None:
        """Write down parameters that came into a module after FSDP2 took those that it shards."""
        for reference, known, ranks in self._units:
            if (module := reference()) is None:
                continue
            for each in module.parameters():
                is_new = id(each) not in known and each.requires_grad
                if is_new and not hasattr(each, "placements"):
                    known.add(id(each))
                    if (found := self.parameters.find(each)) is not None:
                        self.put(LateParameter(found.number, "FSDP", -1, ranks))

    _units: list[tuple[Any, set[int], tuple[int, ...]]]
    _sharded: dict[int, Any]

    def _find_unreduced(self) -> list[str]:
        """Return the parameters of FSDP2 of which a whole gradient waits to be reduced."""
        alive = [each for found in self._sharded.values() if (each := found()) is not None]
        return [str(each._param_fqn or "") for each in alive if _has_whole_gradient(each)]

    def _watch_flat_fsdp(self) -> None:
        """See over which ranks FullyShardedDataParallel splits its flat parameters."""
        from torch.distributed.fsdp import FullyShardedDataParallel

        kind: Any = FullyShardedDataParallel
        begin = kind.__init__

        @functools.wraps(begin)
        def beginning(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            begin(wrapper, *args, **kwargs)
            with self.guard:
                if wrapper.sharding_strategy.name != "NO_SHARD":
                    ranks = self.recorder.dist.get_process_group_ranks(wrapper.process_group)
                    self.put(FlatWrapper(tuple(ranks), self.place(frame_of(1))))

        kind.__init__ = beginning

    def _watch_loading(self) -> None:
        """See where a state is loaded into a module or an optimizer: on which ranks, and when."""
        self._watch_load_of_state(self.torch.optim.Optimizer)
        kind = self.torch.nn.Module
        load = kind.load_state_dict

        @functools.wraps(load)
        def loading(module: Any, *args: Any, **kwargs: Any) -> Any:
            found = load(module, *args, **kwargs)
            with self.guard:
                self.put(ModuleLoad(self.turn, self.place(frame_of(1))))
            return found

        kind.load_state_dict = loading

    def _watch_load_of_state(self, kind: Any) -> None:
        load = kind.load_state_dict

        @functools.wraps(load)
        def load_and_note(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            found = load(optimizer, *args, **kwargs)
            with self.guard:
                place = self.place(frame_of(1))
                self.put(OptimizerLoad(self.turn, place))
                if self._number(optimizer) not in self._settled:  # it has stepped: no resume
                    self._reloaded[id(optimizer)] = self.turn, place
            return found

        kind.load_state_dict = load_and_note

    def _see_loaded_state(self, optimizer: Any) -> None:
        """Write down a state that an optimizer has loaded, before its next step.

        The weights may be loaded after it, and may have come from another rank since.
        """
        if (where := self._reloaded.pop(id(optimizer), None)) is not None:
            self.put(LoadedState(*where, tuple(self._describe_state(optimizer))))

    _reloaded: dict[int, tuple[int, int]]

    def _describe_state(self, optimizer: Any) -> list[tuple[str, str, str]]:
        """Return the place of each parameter in an optimizer, its hash, and that of its state.

        A state of the parameter's shape counts, such as a momentum, that is not constant.
        """
        found: list[tuple[str, str, str]] = []
        places = [
            (f"{at}.{within}", tensor)
            for at, group in enumerate(optimizer.param_groups)
            for within, tensor in enumerate(group["params"])
        ]
        for place, tensor in places[:MOST_STATES]:
            # a ZeroRedundancyOptimizer has None for what other ranks step
            for each in (optimizer.state.get(tensor) or {}).values():
                is_one = isinstance(each, self.torch.Tensor) and each.shape == tensor.shape
                if is_one and not local_part(each).is_meta and not is_constant(each):
                    found.append((place, digest(tensor), digest(each)))
                    break
        return found

    def _watch_saving(self) -> None:
        """See after which steps a checkpoint is written."""
        save = self.torch.save

        @functools.wraps(save)
        def saving(*args: Any, **kwargs: Any) -> Any:
            found = save(*args, **kwargs)
            with self.guard:
                self.put(CheckpointSave(self.turn, self.place(frame_of(1))))
            return found

        self._replace(save, saving, self.torch, self.torch.serialization)

    def _watch_numbers(self) -> None:
        """See which numbers a script reads out of tensors, in a comparison: what it prints."""
        if not self.settings.get("outputs"):
            return
        kind: Any = self.torch.Tensor

        def see(read: Any) -> Any:
            @functools.wraps(read)
            def reading(tensor: Any) -> Any:
                found = read(tensor)
                if type(found) is float and not self.rests:
                    with self.guard:
                        self._see_number(found, frame_of(1))
                return found

            return reading

        kind.item, kind.__float__ = see(kind.item), see(kind.__float__)

    def _see_number(self, number: float, frame: Any) -> None:
        if frame.f_code.co_filename.endswith("torch/_tensor.py"):
            frame = frame.f_back  # a format asks for the number
        if self._numbers < MOST_NUMBERS and not self.is_foreign(frame.f_code.co_filename):
            self._numbers += 1
            self.put(NumberRead(self.turn, self.place(frame), number))

    _numbers = 0

    # ------------------------------------------------------------------ clipping, scaling, dropout

    def _watch_clipping(self) -> None:
        """Note each norm by which gradients are clipped, and of which parameters."""
        module: Any = torch.nn.utils.clip_grad
        clip = module.clip_grad_norm_

        @functools.wraps(clip)
        def clip_gradients(parameters: Any, max_norm: Any, *args: Any, **kwargs: Any) -> Any:
            own = [parameters] if isinstance(parameters, self.torch.Tensor) else [*parameters]
            with self.guard:
                for each in self.listeners:
                    each.before_clip(own)
            norm = clip(own, max_norm, *args, **kwargs)
            with self.guard:
                place = self.place(frame_of(1))
                is_global = hasattr(norm, "placements")
                found = 0.0 if is_global else float(norm)
                known = [self.parameters.find(each) for each in own]
                numbers = tuple(each.number for each in known if each is not None)
                most = float(max_norm)
                self.put(NormClip(self.turn, place, found, most, is_global, numbers))
            return norm

        self._replace(clip, clip_gradients, module, self.torch.nn.utils)
        limit = module.clip_grad_value_

        @functools.wraps(limit)
        def limit_gradients(parameters: Any, clip_value: Any, *args: Any, **kwargs: Any) -> Any:
            with self.guard:
                self.put(ValueClip(self.turn, self.place(frame_of(1)), float(clip_value)))
            return limit(parameters, clip_value, *args, **kwargs)

        self._replace(limit, limit_gradients, module, self.torch.nn.utils)

    def _replace(self, function: Any, by: Any, *holders: Any) -> None:
        """Put a function in place of another one, also where the script has imported that."""
        for holder in (*holders, sys.modules.get("__main__")):
            for name, value in [*vars(holder).items()] if holder is not None else ():
                if value is function:
                    setattr(holder, name, by)

    def _watch_scaler(self) -> None:
        kind = self.torch.amp.GradScaler
        step = kind.step

        @functools.wraps(step)
        def step_scaled(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            self.scaled = True
            before = self._stepped
            self._stepped = False
            result = step(scaler, optimizer, *args, **kwargs)
            skipped = not self._stepped
            with self.guard:
                if scaler.is_enabled():
                    place = self.place(frame_of(1))
                    scale = float(scaler.get_scale())
                    self.put(LossScale(self.turn, place, scale, int(skipped)))
            self._stepped = True if skipped else self._stepped or before
            return result

        kind.step = step_scaled

    def _watch_dropout(self) -> None:
        functional = self.torch.nn.functional
        if self.settings.get("no_dropout"):
            self._leave_dropout_out(functional)
            return
        drop = functional.dropout
        attend = functional.scaled_dot_product_attention

        @functools.wraps(drop)
        def drop_out(*args: Any, **kwargs: Any) -> Any:
            if not self.rests:
                with self.guard:
                    details = dict(zip(("input", "p", "training"), args, strict=False)) | kwargs
                    if details.get("training", True) and details.get("p", 0.5) > 0:
                        self._random(details["input"], frame_of(1))
            return drop(*args, **kwargs)

        @functools.wraps(attend)
        def attend_and_note(query: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.rests:
                with self.guard:
                    if args[3] if len(args) > 3 else kwargs.get("dropout_p", 0.0):
                        self._random(query, frame_of(1))
            return attend(query, *args, **kwargs)

        self._replace(drop, drop_out, functional)
        self._replace(attend, attend_and_note, functional)

    def _watch_noise(self) -> None:
        """See what is drawn for the rows of a batch: noise that a script adds itself."""

        def see(draw: Any) -> Any:
            @functools.wraps(draw)
            def draw_noise(*args: Any, **kwargs: Any) -> Any:
                found = draw(*args, **kwargs)
                if self.turn < MOST_DRAWN_TURNS and not self.rests:
                    with self.guard:
                        self._see_noise(found, frame_of(1))
                return found

            return draw_noise

        for holder, names in zip((self.torch, self.torch.Tensor), NOISES, strict=True):
            for name in names:
                setattr(holder, name, see(getattr(holder, name)))

    def _see_noise(self, noise: Any, frame: Any) -> None:
        """Write down the noise of a training step: its hash, and its shape."""
        if self.in_backward or self.depth.optimizer or not self.torch.is_grad_enabled():
            return
        is_plain = plain_tensor(noise) is noise and type(noise) is self.torch.Tensor
        if is_plain and not noise.is_meta and noise.ndim and noise.numel() >= FEW_DRAWN:
            with self.torch.no_grad():
                found = digest(noise)
            self.put(NoiseDraw(self.turn, self.place(frame), found, tuple(noise.shape)))

    def _leave_dropout_out(self, functional: Any) -> None:
        """Let every dropout keep all elements, so that runs can be compared."""

        def off(function: Any, at: int, name: str) -> Any:
            @functools.wraps(function)
            def keep_all(*args: Any, **kwargs: Any) -> Any:
                own = [*args]
                if len(own) > at:
                    own[at] = 0.0
                else:
                    kwargs[name] = 0.0
                return function(*own, **kwargs)

            return keep_all

        for name in DROPOUTS:
            function = getattr(functional, name)
            self._replace(function, off(function, 1, "p"), functional)
        attend = functional.scaled_dot_product_attention
        self._replace(attend, off(attend, 3, "dropout_p"), functional)

    def _random(self, tensor: Any, frame: Any) -> None:
        """Write down the state of the generator and the input of a random call."""
        if self.in_backward or not self.torch.is_grad_enabled():
            return
        device = tensor.device
        state = (
            self.torch.get_rng_state()
            if device.type == "cpu"
            else self.torch.get_device_module(device).get_rng_state(device)
        )
        with self.torch.no_grad():
            hashes = digest(state), digest(tensor)
        self.put(DropoutCall(self.turn, self.place(frame), *hashes, tuple(tensor.shape)))


def _has_whole_gradient(sharded: Any) -> bool:
    """Whether a parameter of FSDP2 has a gradient that no reduction has had yet."""
    whole = getattr(sharded, "_unsharded_param", None)
    accumulated = getattr(sharded, "unsharded_accumulated_grad", None)
    return accumulated is not None or (whole is not None and whole.grad is not None)


def _find_stage(names: Collection[str]) -> Any:
    """Return the stage of a pipeline of torch that calls a module in one of some methods."""
    frame = sys._getframe(2) if PIPELINES in sys.modules else None
    for _ in range(MOST_FRAMES):
        if frame is None:
            return None
        if frame.f_code.co_name in names:
            return frame.f_locals.get("self")
        frame = frame.f_back
    return None


def _code_of(function: Any) -> Any:
    """Return the code of a function, a method, or an object that is called; None of any other."""
    found = getattr(function, "__code__", None)
    return found or getattr(type(function).__dict__.get("__call__"), "__code__", None)


def _list_hooks(function: Any, is_foreign: Callable[[str], bool]) -> list[Any]:
    """Return a hook and those that it wraps: what its closure or `functools.partial` holds.

    And what a function of the script calls by its name, as torch's own hooks.
    """
    found: list[Any] = []
    left = [function]
    while left:
        each = left.pop()
        if each in found:
            continue
        found.append(each)
        held = [getattr(each, "func", None)]
        for cell in getattr(each, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # a cell that nothing has been put into
                held.append(cell.cell_contents)
        if isinstance(each, FunctionType) and not is_foreign(each.__code__.co_filename):
            names = each.__code__.co_names
            own = [each.__globals__.get(name) for name in names]
            modules = [value for value in own if isinstance(value, ModuleType)]
            held += [*own, *(getattr(e, name, None) for e in modules for name in names)]
        left += [e for e in held if isinstance(e, (FunctionType, functools.partial))]
    return found


def has_nan(torch: Any, tensor: Any) -> bool:
    """Whether a tensor has a NaN or a positive infinity."""
    plain = local_part(tensor)
    if not plain.numel():
        return False
    refuse_in_capture(plain)
    with torch.no_grad():
        total = float(plain.sum(dtype=torch.float64 if plain.numel() < 4096 else torch.float32))
        if total - total == 0.0:  # finite: so are all elements
            return False
        return bool(plain.isnan().any()) or bool(plain.isposinf().any())


def _number_of(line: str, at: int) -> int:
    """Return the number of a loader: the same on all ranks that read it at one line."""
    return FIRST_LOADER + int(digest_text(f"{line} {at}")[:6], 16)


def describe_loader(loader: Any) -> dict[str, Any]:
    """Return what a loader's sampler says of itself."""
    sampler = getattr(loader, "sampler", None)
    inner = getattr(getattr(loader, "batch_sampler", None), "sampler", None)
    sampler = inner if inner is not None and hasattr(inner, "num_replicas") else sampler
    dataset = getattr(loader, "dataset", None)
    details: dict[str, Any] = {
        "sampler": type(sampler).__name__,
        "dataset": type(dataset).__name__,
        "rows": _length(dataset),
        "batches": _length(loader),
        "batch_size": getattr(loader, "batch_size", None),
        "replacement": bool(
            getattr(sampler, "replacement", False)
            or type(sampler).__name__ == "WeightedRandomSampler"
        ),
        "shuffle": bool(getattr(sampler, "shuffle", type(sampler).__name__ == "RandomSampler")),
    }
    for name in ("num_replicas", "rank", "total_size", "drop_last"):
        value = getattr(sampler, name, None)
        if isinstance(value, bool | int):
            details[name] = value
    return details


def _length(dataset: Any) -> int:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return -1


def _are_numbers(indices: Any) -> bool:
    try:
        return isinstance(indices, list | tuple) and all(int(each) == each for each in indices)
    except (TypeError, ValueError):
        return False
