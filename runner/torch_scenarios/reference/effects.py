"""What a rule says must happen; an engine applies it, to one rank or to many at once.

A rule changes nothing. It returns effects, and the walk and the cohorts have each their own way to
carry them out: rank by rank, or in columns. What only one rank does (`Begin`, `Await`, `Create`,
`Go`, `Raise`, `End`) is meant of the rank for which the rule was asked.

Two engines are why rules do not act themselves (decision 95): each would state once more what an
all_reduce is. With effects there is one statement, and what may differ is bookkeeping: a loop over
posts, or a mask over rows.

The effects of a program of two ranks, in the order in which the walk applies them:

    rank 0   all_reduce x           Begin()                  it enters, and is blocked
    rank 1   all_reduce x           Begin()                  now all members are there:
                                    Leave([(0, x), (1, x)])  what each of them will hold
                                    Pass(0), Pass(1)         both may go on
    rank 0   isend x to 1, work w   Begin([message])         the call returns at once
             wait w                 Await((w,))              blocked until rank 1 receives
    rank 1   kill                   End("SIGKILL")           its process is gone
    rank 0   (nothing moves)        Abandon((w,))            the message is taken back
                                    Open({"error"})          whether it raises or hangs is open
                                    Raise(peer_lost)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct, field

from torch_scenarios.expressions.values import Undefined
from torch_scenarios.model.trace import Failure
from torch_scenarios.operations.base import Group, Message, Refusal
from torch_scenarios.reference.matching import (
    CollectiveMatch,
    CollectivePost,
    CreationPost,
    Post,
    Series,
    Work,
)
from torch_scenarios.reference.symptoms import Symptom

#: (argument, what it holds afterwards, slack); the argument is None for the buffer of a message
Outcome: TypeAlias = list[tuple[str | None, Any, Any]]


class Begin(Struct, frozen=True):
    """A call starts work: it posts `messages`, or enters the next collective where there are none.

    With a `refusal` it posts nothing, and its wait raises: torch checks some arguments only on the
    thread that carries an asynchronous call out.

        all_reduce(x)                   Begin()
        isend(x, 1)                     Begin((Message to 1,))
        batch_isend_irecv([...])        Begin((Message, Message)): one work, begun at one stroke
    """

    messages: Sequence[Message] = ()
    refusal: Refusal | None = None


class Ask(Struct, frozen=True):
    """The rank calls a function on rank `to`, as `rpc_sync`, `rpc_async` and `remote` do.

    The callee need not call anything for it: a thread of its process serves.

        rpc_sync("worker1", push, args=(g,))      Ask(to=1, function="push")
    """

    to: int
    function: str


class Await(Struct, frozen=True):
    """The rank waits for these works; for `twice` of them, it has waited before.

    The rank goes on once all of them are done. A second wait is no error in torch's documentation,
    but Gloo blocks in it for messages, so that the walk keeps the count for a backend's forecast.

        w = isend(x, 1)
        w.wait()                        Await((w,))
        w.wait()                        Await((w,), twice=1), and a `double_wait`
    """

    works: tuple[Work, ...]
    twice: int = 0


class Create(Struct, frozen=True):
    """The rank enters the next creation of a series; `splits`: it splits the world for it.

    A `reused` name may find the members of an earlier group.

        new_group([0, 2])               Create(group, series=((), 0)): all ranks of the world meet
        new_group([0, 2],               Create(group, series=((0, 2), 0)): only the members do,
          use_local_synchronization)    and a call that names other members is another series
    """

    group: Group
    series: Series
    splits: bool = False
    reused: bool = False


class Deny(Struct, frozen=True):
    """A creation is refused, because its rank still uses a group of that name.

    It precedes the `Raise` of the same call. The run notes the call, so that a forecast can tell
    that it was refused for its name.
    """


class Go(Struct, frozen=True):
    """A step is done once `seconds` have passed; `before` is what the names held that it makes.

    It is the effect of what a rank does alone (`sleep`, `set`, a step of an optimizer): no other
    rank is asked. `seconds` are virtual, and 0 for everything but a `sleep`: what a kernel takes is
    a matter of `scenario cost` and not of the semantics.

        sleep: 2                        Go(seconds=2.0)
        set: {y: x + 1}                 Go(seconds=0.0, before={"y": what y held})
    """

    seconds: float
    before: Mapping[str, Any] = field(default_factory=dict)


class Raise(Struct, frozen=True):
    """The rank's call raises, at once or `at_s`.

    `spoilt` are the names that it may have stored into, each with why it is undefined then; None
    where only that it may have is noted. The rank ends by it, unless its step states `expect:
    {raises: ...}`.

        all_reduce(x)  # 31 s too late, `timeout` is 30 s
            Raise(Failure(kinds=("timeout", "peer_lost", "aborted")), at_s=30.0)
    """

    failure: Failure
    at_s: float | None = None
    spoilt: Mapping[str, Undefined | None] = field(default_factory=dict)


class End(Struct, frozen=True):
    """The rank's process ends: `how` is a signal's name or `exit N`.

    What it has under way stays where it is: a message that was buffered may still arrive, and a
    peer that waits for the rank is found by
    :func:`torch_scenarios.reference.rules.waiting.give_up`.

        fault: kill                     End("SIGKILL")
        fault: exit                     End("exit 1")
    """

    how: str


class Abandon(Struct, frozen=True):
    """The rank gives these works up: they no longer count as having begun.

    A message is taken out of the box, and an entered collective counts one member less. Otherwise a
    rank that comes later would meet one that raised long ago, and pass.
    """

    works: Sequence[Work]


class Pass(Struct, frozen=True):
    """A post is done `time_s` after the scenario began; of a column's posts, these `rows`.

    None are all rows. A post that is done does not free its rank: that goes on once each post of
    each work is done for which it waits.

        rank 0 enters at 0 s, rank 1 at 2 s
        Pass(post of rank 0, 2.0), Pass(post of rank 1, 2.0)      the last one decides
    """

    post: Any
    time_s: float = 0.0
    rows: Any = None


class Late(Struct, frozen=True):
    """A creation raises `at_s`, because a member waited too long; `first`: this one waited.

    Who waited raises a timeout. Who comes after it finds no process that listens, and raises that
    it lost a peer: `first` tells the two apart.

        timeout 30 s    rank 0 calls at 0 s    Late(at_s=30.0, first=True)
                        rank 1 calls at 40 s   Late(at_s=40.0, first=False)
    """

    creating: CreationPost
    at_s: float
    first: bool


class Leave(Struct, frozen=True):
    """What posts leave on their ranks, once each of these completes its call.

    It is computed when the last member comes and stored when the rank goes on, which may be later:
    an asynchronous call stores at its wait. `settles` is the collective whose result is known by
    that; a member that comes after it must not compute it once more.
    """

    outcomes: Sequence[tuple[Post, Outcome]]
    settles: CollectiveMatch | None = None


class Keep(Struct, frozen=True):
    """A rank goes on without its peer: what it gave is copied, for it may change it.

        rank 0   send x to 1 (a buffer takes it)   x = 5
        rank 1   sleep 1                           recv y      y is what x was at the send

    Without the copy the message would be a view of rank 0's tensor, and y would be 5.
    """

    post: Post


class Spoil(Struct, frozen=True):
    """The members of a collective disagree: its result is undefined, and `opened` may happen.

        rank 0   broadcast x from 0     Spoil(match, both, Symptom("root_mismatch"), opened)
        rank 1   broadcast x from 1

    MPI calls such a program erroneous and promises nothing. So `opened` are all outcomes: that a
    backend happens to complete it, to hang or to crash is no disagreement with the prediction.
    """

    match: CollectiveMatch
    members: Sequence[CollectivePost]
    symptom: Symptom
    opened: frozenset[str]


class Open(Struct, frozen=True):
    """Outcomes that a run may show in place of the predicted one.

    They are names of outcomes (`completes`, `deadlock`, `error`). An outcome is opened where the
    documentation of torch or of MPI leaves it to the implementation, and never to hide a
    difference.
    """

    outcomes: frozenset[str]


Effect: TypeAlias = (
    Begin
    | Ask
    | Await
    | Create
    | Deny
    | Go
    | Raise
    | End
    | Abandon
    | Pass
    | Late
    | Leave
    | Keep
    | Spoil
    | Open
    | Symptom
)
