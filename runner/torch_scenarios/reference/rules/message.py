"""Messages: which send meets which receive, when the sender may go on, what the receiver gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from msgspec import Struct

from torch_scenarios.expressions.values import Undefined
from torch_scenarios.model.process import Call
from torch_scenarios.model.traffic import count_payload_bytes
from torch_scenarios.operations.base import LENGTH, Message, PointToPoint, measure_pickles
from torch_scenarios.reference.effects import Begin, Effect, Keep, Leave, Open, Pass
from torch_scenarios.reference.matching import Mailbox, MessagePost
from torch_scenarios.reference.rules import rule
from torch_scenarios.reference.rules.words import name_misfit
from torch_scenarios.reference.semantics import Semantics
from torch_scenarios.reference.state import ALL_OUTCOMES, RankState, Run


class Content(Struct, frozen=True):
    """What one end of a message moves: so many elements of a dtype, or objects (None).

    It has no shape, for a message has none: `[1, 4]` fills `[2, 2]` (MPI 4.1, 3.3). A send and a
    receive fit where their contents are equal.

    >>> content_of(np.zeros((1, 4))) == content_of(np.ones((2, 2)))
    True
    >>> print(content_of(np.zeros((1, 4))), "and", content_of(["a list is objects"]))
    4 elements and 1 object
    """

    dtype: Any
    count: int

    def __str__(self) -> str:
        """How many there are."""
        what = "object" if self.dtype is None else "element"
        return f"{self.count} {what}{'' if self.count == 1 else 's'}"


class MessageMismatch(Struct, frozen=True):
    """How the two ends of a message do not fit: the diagnosis, and what each end does.

    The words are parts of a sentence whose subject is a rank.

    >>> find_mismatch(Content(np.dtype("float32"), 4), Content(np.dtype("float32"), 3))
    MessageMismatch(name='shape_mismatch', sends='sends 4 elements', receives='receives 3 elements')

    Objects have a dtype of their own: `send_object_list` is two messages of bytes, which a `recv`
    into a tensor would take for elements.

    >>> find_mismatch(Content(None, 1), Content(np.dtype("uint8"), 1)).name
    'dtype_mismatch'
    """

    name: str
    sends: str
    receives: str


@rule(
    "The messages of one call begin together; without `async_op` the rank waits for all of them.",
    source="torch.distributed.batch_isend_irecv; MPI 4.1, 3.7.4",
    shown="p2p/batch_ring",
)
def post(_: Run, __: RankState, call: Call) -> list[Effect]:
    """A call starts work, which is the messages that it sends and receives, in order."""
    assert isinstance(call.operation, PointToPoint)
    return [Begin(call.operation.messages(call.entry))]


@rule(
    "A send meets a receive on the same group whose ends are each other's and whose tags are the "
    "same. Between the same ends with the same tag the first sent meets the first posted receive.",
    source="MPI 4.1, 3.5: messages do not overtake each other; torch.distributed.send, `tag`",
    shown="p2p/same_tag_in_order p2p/tags_out_of_order wrong/tag_mismatch/two_constants",
)
def answers(
    ranks: tuple[Any, Any], peers: tuple[Any, Any], tags: tuple[Any, Any] | None = None
) -> Any:
    """Whether two opposite ends name each other: integers, or arrays of them.

    `tags` is None where an implementation does not look at them.

    >>> answers(ranks=(0, 1), peers=(1, 0), tags=(7, 7)), answers((0, 1), (1, 0), (7, 8))
    (True, False)
    >>> answers((np.array([0, 1]), np.array([1, 0])), (np.array([1, 2]), np.array([0, 1])))
    array([ True, False])
    """
    each_other = (peers[0] == ranks[1]) & (peers[1] == ranks[0])
    return each_other if tags is None else each_other & (tags[0] == tags[1])


# Why a receive from anyone is not met as soon as a message is there.
#
#     rank 0   recv a from anyone     recv b from anyone
#     rank 1   send 1 to 0
#     rank 2   send 2 to 0
#
# Were each receive to take the first message that is posted, the order in which this analysis takes
# ranks would decide: rank 1 is looked at before rank 2, and a = 1. A real run may have a = 2. So
# such a receive waits until nothing else moves. By then every message that could reach it without
# it has been posted, and those are its choices: no order is missed, and none is listed that cannot
# happen.
#
# A receive by name that is posted after it has to wait as well, if both could take the same
# message: its match depends on what the first one chooses. That is the price of delaying, and the
# reason why `Mailbox.partner_of` looks at receives from anyone first.
@rule(
    "A receive from anyone takes the first message of one of the senders. Which of them depends on "
    "the order of arrival. A receive that was posted after it has to wait for its choice.",
    source="MPI 4.1, 3.5 and 3.2.4; Vakkalanka, Gopalakrishnan and Kirby (2008), delayed matching",
    shown="p2p/from_anyone wrong/message_race/first_come",
)
def list_choices(mailbox: Mailbox) -> list[tuple[MessagePost, MessagePost]]:
    """Return which messages may be taken where nothing else moves, each with its receive.

    That is the receive from anyone, or one that names the sender, although posted later: torch
    promises no order between the two, and Gloo tells a sender of receives that name it alone.
    """
    found: list[tuple[MessagePost, MessagePost]] = []
    for receive, sends in mailbox.open():
        found += [(send, receive) for send in sends]
        named = [(send, mailbox.find_named_receive(send)) for send in sends]
        found += [(send, other) for send, other in named if other is not None]
    return found


@rule(
    "A send may wait until its receive is posted; whether a buffer takes the message before is "
    "left to the implementation. Who receives nothing must not rely on a buffer.",
    source="MPI 4.1, 3.4 and 3.5; torch.distributed.send",
    shown="wrong/buffering_hazard/send_before_barrier wrong/circular_wait/ring_of_sends",
)
def buffer(
    post: MessagePost, semantics: Semantics, under_way: Callable[[MessagePost], int]
) -> list[Effect]:
    """Let a sender go on whose message no receive has met, where a buffer takes it.

    `under_way` counts the messages before it that were sent and not received.
    """
    room = semantics.on(post.group).buffer if post.message.sends else None
    if room is None:
        return []
    size_bytes = post.payload.nbytes if isinstance(post.payload, np.ndarray) else None
    if not room.takes(size_bytes, under_way(post)):
        return []
    return [Keep(post), Pass(post, post.time_s)]


@rule(
    "A message has a dtype and elements, and no shape: [1, 4] fills [2, 2]. Both ends must have "
    "the same dtype and the same number of elements.",
    source="MPI 4.1, 3.3 and 3.2.4; torch.distributed.recv, measured on torch 2.13",
    shown="p2p/into_a_slice wrong/dtype_mismatch/half_sent_as_bfloat",
)
def find_mismatch(sent: Content, received: Content) -> MessageMismatch | None:
    """Return how two ends do not fit, or None.

    >>> four = Content(np.dtype("float32"), 4)
    >>> find_mismatch(four, four) is None, find_mismatch(four, Content(np.dtype("float64"), 4)).name
    (True, 'dtype_mismatch')
    """
    if (sent.dtype is None) != (received.dtype is None):
        kinds = ["objects" if each.dtype is None else "a tensor" for each in (sent, received)]
        return MessageMismatch("dtype_mismatch", f"sends {kinds[0]}", f"receives {kinds[1]}")
    if sent.dtype != received.dtype:
        return MessageMismatch(
            "dtype_mismatch", f"sends {sent.dtype}", f"receives {received.dtype}"
        )
    if sent.count != received.count:
        return MessageMismatch("shape_mismatch", f"sends {sent}", f"receives {received}")
    return None


def content_of(value: Any) -> Content:
    """Return what one end of a message moves."""
    if value.__class__ is np.ndarray:
        return Content(value.dtype, value.size)
    if isinstance(value, list):
        return Content(None, len(value))
    array = np.asarray(value)
    return Content(array.dtype, array.size)


@rule(
    "Both ends of a message may go on once the later one is posted. The receiver then holds what "
    "was sent. Where the ends do not fit, nothing is promised.",
    source="MPI 4.1, 3.4 and 3.7.3; torch.distributed.recv",
    shown="p2p/send_recv",
)
def deliver(send: MessagePost, receive: MessagePost) -> list[Effect]:
    """Let a message arrive, and its two ends pass."""
    payload = send.payload
    effects: list[Effect] = []
    found = find_mismatch(content_of(payload), content_of(receive.message.buffer))
    value: Any = payload.copy() if isinstance(payload, np.ndarray) else payload
    if found is not None:
        value = Undefined(cause=f"a message with a {found.name}", diagnosis=found.name)
        symptom = name_misfit(send, receive, found.name, found.sends, found.receives)
        effects += [Open(ALL_OUTCOMES), symptom]
    elif send.tainted is not None or receive.tainted is not None:
        value = send.tainted or receive.tainted
    time_s = max(send.time_s, receive.time_s)
    passes = [Pass(post, time_s) for post in (send, receive)]
    return [*effects, Leave([(receive, [(None, value, None)])]), *passes]


def weigh(message: Message) -> tuple[float | None, float | None]:
    """Return the bytes of a message, and of the one before it that has the lengths of objects."""
    given = message.payload if message.sends else message.buffer
    if not message.objects:
        return count_payload_bytes([given]), None
    sizes = measure_pickles(given) if message.sends else [0]
    return None if sizes is None else sum(sizes), LENGTH * len(given)
