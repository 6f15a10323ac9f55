"""One sighting of something wrong in a run, before diagnoses are made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from torch_scenarios.errors import Clause, Mark
from torch_scenarios.model.trace import WaitEdge
from torch_scenarios.reference.matching import Post, Work

# An edge of the wait-for graph.


class PostEdge(Struct, frozen=True, kw_only=True):
    """A rank that is blocked in `post` waits for rank `peer`; `because` and `act` say to do what.

    It is an edge of the wait-for graph. A circle of sure edges is a deadlock; `sure` is False where
    one peer of several is enough, as for a receive from anyone, which a circle does not block yet.

        rank 0   recv from 1     PostEdge(post of 0, peer=1, because="to send", act="send")
        rank 1   recv from 0     PostEdge(post of 1, peer=0, because="to send", act="send")
                                 0 -> 1 -> 0 is the diagnosis `circular_wait`
    """

    post: Post
    peer: int
    because: str
    act: str
    sure: bool = True

    def wait(self) -> WaitEdge:
        """Return the edge as it stands in a trace."""
        step = self.post.call.step
        return WaitEdge(
            waiter=self.post.rank,
            peer=self.peer,
            label=self.post.call.label,
            index=step.index,
            because=self.because,
            place=self.post.call.mark.short if self.post.call.mark else "",
            sure=self.sure,
        )


# A mistake that the simulation came across, before it is put into words for the whole program.


class Symptom(Struct, frozen=True, kw_only=True):
    """One sighting of a mistake. Sightings of the same `kind` are one diagnosis.

    `name` is one of :data:`torch_scenarios.vocabulary.DIAGNOSES`; `index` and `iteration` the step
    where it shows; `ranks` those it concerns, `odd` the rank that most others disagree with.
    `clauses` say it to a person, `path` are the waits that explain it, edge by edge. An `optional`
    one follows from a mistake that the scenario itself asks for. `argument` is the wrong one.

    A race in a loop of 1,000 turns on 8 ranks is 8,000 sightings and one mistake. The `kind` says
    what makes them one: of a race it has the step whose work still uses the tensor.

    >>> Symptom(name="buffer_race", clauses=(), kind="race:3", ranks=(0,)).kind
    'race:3'
    """

    name: str
    clauses: tuple[Clause, ...]
    kind: str
    index: int = -1
    iteration: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    odd: tuple[int, ...] = ()
    also: tuple[str, ...] = ()
    optional: bool = False
    argument: str | None = None
    path: tuple[PostEdge, ...] = ()


# Words that several findings share: places, and lists of ranks.

#: ranks that are listed one by one
LISTED = 8
#: parts of a disagreement that are reported: with many ranks each may have another value
PARTS = 3
#: characters of a value that are shown
SHOWN = 60


def place(post: Post | Work) -> str:
    """Return ` (file:line)` of the step that posted something, or nothing."""
    mark = post.call.mark
    return f" ({mark.short})" if mark else ""


def list_ranks(numbers: Sequence[int]) -> str:
    """Return `rank 3`, `ranks 0, 2`, or for many the first few and how many more.

    >>> list_ranks([3]), list_ranks([0, 2])
    ('rank 3', 'ranks 0, 2')
    >>> list_ranks(range(1024))
    'ranks 0, 1, 2, 3, 4, 5, 6 and 1017 more'
    """
    if len(numbers) > LISTED:
        shown = ", ".join(map(str, numbers[: LISTED - 1]))
        return f"ranks {shown} and {len(numbers) - LISTED + 1} more"
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(map(str, numbers))


def list_numbers(numbers: Sequence[int]) -> str:
    """Return `[0, 1, 2]`; of many the first ones, the last, and how many there are.

    >>> list_numbers([0, 1]), list_numbers(range(64))
    ('[0, 1]', '[0, 1, 2, ..., 63] (64 ranks)')
    """
    if len(numbers) <= LISTED:
        return f"[{', '.join(map(str, numbers))}]"
    first = ", ".join(map(str, numbers[:3]))
    return f"[{first}, ..., {numbers[-1]}] ({len(numbers)} ranks)"


def clip(text: str) -> str:
    """Return a value's text, its middle left out where it is long.

    >>> clip("x" * 200) == "x" * 27 + " ... " + "x" * 27
    True
    """
    if len(text) <= SHOWN:
        return text
    half = (SHOWN - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def odd_first(
    parts: Mapping[str, Sequence[int]], tell: Callable[[str], tuple[str, Mark | None]]
) -> list[Clause]:
    """Tell which ranks have which value: the fewest ranks first, and at most a few values.

    `parts` has the ranks by their value, in the order of the first rank; `tell` puts a value into
    words, without its ranks, and says where the first of them has it.
    """
    ordered = sorted(parts, key=lambda value: len(parts[value]))
    clauses = []
    for value in ordered[:PARTS]:
        words, mark = tell(value)
        clauses.append(Clause(f"{list_ranks(parts[value])} {words}", mark))
    if len(ordered) > PARTS:
        more = sum(len(parts[value]) for value in ordered[PARTS:])
        clauses.append(Clause(f"and other values on {more} more ranks"))
    return [replace(clauses[0], joint=": "), *clauses[1:]]
