"""What of torch's semantics a program uses, as words: `needs:` of a file, `LACKS` of a plugin.

A backend that lacks one of them can still be right about everything else. So a scenario names no
brand: the analysis derives the words (:mod:`torch_scenarios.reference.needs`), a backend says which
of them it lacks, and where the two meet the case is UNSUPPORTED.

The table is the only one: the schema, the derivation, the traits of known backends and the levels
of a certificate read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from torch_scenarios.errors import Marked
from torch_scenarios.model.traits import traits_of

#: the levels of a certificate, in the order in which a backend grows
LEVELS = ("p2p", "collectives", "groups", "async", "objects", "errors", "hangs", "dtypes")


class Capability(Struct, frozen=True, kw_only=True):
    """What a backend has, or lacks: `means` says it in a line.

    `level` is one of :data:`LEVELS`; None where it is torch's own and no backend's.

    >>> CAPABILITIES["tags"].level, CAPABILITIES["tags"].means
    ('p2p', 'a message carries a tag other than 0')
    """

    level: str | None
    means: str


def _make_capability(level: str | None, means: str) -> Capability:
    return Capability(level=level, means=means)


#: every word of `needs:` and `LACKS`
CAPABILITIES: Mapping[str, Capability] = {
    "tags": _make_capability("p2p", "a message carries a tag other than 0"),
    "any_source": _make_capability("p2p", "a receive names no sender"),
    "objects": _make_capability("objects", "Python objects are sent, or a checkpoint is planned"),
    "async": _make_capability("async", "a call returns before it is done, and is waited for"),
    "coalesced": _make_capability("collectives", "one collective takes several tensors"),
    "batch": _make_capability("p2p", "`batch_isend_irecv`: messages that start as one"),
    "crossing_messages": _make_capability(
        "p2p", "first messages of two ranks cross, each sent before the other is received"
    ),
    "subgroups": _make_capability("groups", "a process group other than the world"),
    "p2p": _make_capability("p2p", "a message from one rank to another"),
    "avg": _make_capability("collectives", "the reduce op `avg`"),
    "premul_sum": _make_capability("collectives", "the reduce op `premul_sum`"),
    "float16": _make_capability("dtypes", "tensors of float16"),
    "bfloat16": _make_capability("dtypes", "tensors of bfloat16"),
    "float8": _make_capability("dtypes", "tensors of one of the four float8 dtypes"),
    "complex": _make_capability("dtypes", "tensors of complex64 or complex128"),
    "uneven_split": _make_capability("collectives", "a collective whose parts differ in size"),
    "monitored_barrier": _make_capability(
        "errors", "`monitored_barrier`: a barrier that names who is missing"
    ),
    "timeouts": _make_capability(
        "errors", "a call that waits in vain raises: by its timeout, or for its peer"
    ),
    "abort": _make_capability(
        "hangs", "a call that blocks for good can be broken off, so that workers live on"
    ),
    "rpc": _make_capability(None, "`torch.distributed.rpc`"),
}

#: the words that no analysis can refute of a program that sends messages, and of any
OPEN_WITH_MESSAGES = frozenset({"crossing_messages", "tags"})
OPEN = frozenset({"timeouts", "abort"})


class StatedNeed(Marked, frozen=True, kw_only=True):
    """One word of `needs:` in a file.

    A stated need is for what no analysis sees. One that the program is known not to use is a
    warning (`need_refuted`), since it would leave the case out on backends that can run it.
    """

    word: str


class Needs(Struct, frozen=True, kw_only=True):
    """What one case needs: `steps` maps each word to the indexes of the steps that need it.

    A word that the file states, or that no single step needs, has no step. `refuted` are the stated
    words that the program does not use: they are left out of `steps`.
    """

    steps: Mapping[str, frozenset[int]] = field(default_factory=dict)
    refuted: tuple[StatedNeed, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words, in the order of the table."""
        return tuple(word for word in CAPABILITIES if word in self.steps)


class Lacks(Struct, frozen=True, kw_only=True):
    """What a run may lack: words that a plugin declares, with its module, and known ones.

    LACKS = ["tags", "any_source"]      in a plugin: its cases with tags are UNSUPPORTED, not FAILED
    """

    declared: Mapping[str, str] = field(default_factory=dict)
    backends: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.declared or any(traits_of(name).lacks for name in self.backends))


def word_lacks(backend: str, lacked: Sequence[str]) -> str:
    """Say what a case needs and a backend, or the plugin of one, lacks."""
    words = ", ".join(f"`{word}` ({CAPABILITIES[word].means})" for word in lacked)
    return f"it needs {words}, which {backend} lacks"
