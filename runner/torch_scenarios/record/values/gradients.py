"""What a backward pass leaves in gradients, held against what an optimizer's step finds there.

What writes them in between (a clip, a scale, noise) is no fault of their reduction. It runs in the
user's processes: the standard library and torch alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch_scenarios.record.values.digest import digest, digest_text, local_part

#: elements by which one tensor is found to be another one times a number, of how many tensors
HEAD, MOST_HEADS = 8, 8
#: bytes of gradients of another device that are copied after a backward pass
MOST_COPIED = 1 << 26
#: relative difference of two numbers that rounding does not make
APART = 1e-5


class LeftGradients:
    """The gradients of a process as its last backward pass left them: a hash of each."""

    def __init__(self, parameters: Any, put: Callable[[list[Any]], None]) -> None:
        """Know none yet."""
        self._parameters, self._put = parameters, put
        self._left: dict[int, str] = {}
        self._heads: dict[int, Any] = {}
        self._place: int | None = None

    def see(self, turn: int, place: int) -> None:
        """Hash what a backward pass has left."""
        self._left.clear()
        self._heads.clear()
        self._place = place
        room = MOST_COPIED
        for number, gradient in self._gradients():
            plain = local_part(gradient)
            if plain.device.type != "cpu":
                room -= plain.numel() * plain.element_size()
                if room < 0:
                    continue
            self._left[number] = digest(gradient)
            if len(self._heads) < MOST_HEADS and plain.layout.__repr__() == "torch.strided":
                self._heads[number] = plain.reshape(-1)[:HEAD].double()
        whole = digest_text(" ".join(f"{n} {each}" for n, each in sorted(self._left.items())))
        self._put(["left", turn, place, whole])

    def _gradients(self) -> Iterator[tuple[int, Any]]:
        """Yield the gradients that may be those of replicas, by the number of their parameter."""
        for known in self._parameters.known.values():
            gradient = None if (tensor := known.tensor) is None else tensor.grad
            if gradient is None or local_part(gradient).is_meta:
                continue
            if not any(each.is_shard() for each in getattr(gradient, "placements", ())):
                yield known.number, gradient

    def meet(self, gradients: list[list[Any]]) -> None:
        """Write down which gradients of a step are others than the backward pass has left."""
        if self._place is None:
            return
        changed = [
            [number, self._left.get(number)]
            for number, found in gradients
            if self._left.get(number) != found
        ]
        self._put(["kept", self._place, changed, self._find_factor({n for n, _ in changed})])

    def _find_factor(self, changed: set[int]) -> float | None:
        """Return the one number by which all that changed was multiplied, where there is one."""
        factors = [
            _ratio(local_part(gradient).reshape(-1)[:HEAD].double(), self._heads[number])
            for number, gradient in self._gradients()
            if number in changed and number in self._heads
        ]
        known = [each for each in factors if each is not None]
        if not known or len(known) < len(factors):
            return None
        return known[0] if max(known) - min(known) <= APART * abs(known[0]) else None

    def forget(self) -> None:
        """Forget them: another backward pass begins."""
        self._left.clear()
        self._heads.clear()
        self._place = None


def _ratio(head: Any, before: Any) -> float | None:
    """Return the number that some elements are others times, or None."""
    if head.shape != before.shape or not before.numel():
        return None
    at = int(before.abs().argmax())
    if float(before[at]) == 0.0:
        return None
    found = float(head[at]) / float(before[at])
    away = float((head - found * before).abs().max())
    return found if away <= APART * float(before.abs().max()) * max(abs(found), APART) else None
