"""How one message is sent or received: blocking, started and waited for, or in a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.scoreboard.sketch import Sketch

#: how each side may do it
SENDING = ("send", "isend", "batch")
RECEIVING = ("recv", "irecv", "batch")


def post(  # noqa: PLR0913 -- what a message has
    sketch: Sketch,
    name: str,
    how: str,
    *,
    rank: int,
    peer: int | None,
    tensor: str,
    sends: bool,
    tag: int = 0,
    wait: bool = True,
) -> str:
    """Add the steps of one side of a message; return the name of its wait, or of the call.

    `peer` None receives from anyone. Without `wait` the handle is `name` with underscores.
    """
    group = sketch.place.group
    where: dict[str, Any] = {"group": group} if group else {}
    where |= {"tag": tag} if tag else {}
    handle = name.replace(" ", "_")
    if how == "batch":
        word = "isend" if sends else "irecv"
        item = {"op": word, "tensor": tensor, "peer": peer, **where}
        sketch.step(name, ranks=rank, handle=handle, batch_isend_irecv=[item])
    else:
        role = {} if peer is None else {"dst" if sends else "src": peer}
        later = how in {"isend", "irecv"}
        action = {"tensor": tensor, **role, **where}
        sketch.step(name, ranks=rank, handle=handle if later else None, **{how: action})
        if not later:
            return name
    if wait:
        sketch.step(f"{name}, waited", ranks=rank, wait=handle)
    return f"{name}, waited"
