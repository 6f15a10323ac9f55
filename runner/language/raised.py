"""What `raises:` says: kinds of error, none, or a kind with a part of its message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.language import choosing, words
from runner.language.tree import Mapping, Node, Scalar, Sequence, key_text
from runner.scenario import RaiseSpec
from runner.vocabulary import RAISE_KINDS

if TYPE_CHECKING:
    from runner.forms import PerRank
    from runner.language.context import Context

_NONE = "none"


def raised(node: Node, context: Context) -> RaiseSpec | PerRank[RaiseSpec]:
    """Return what `raises:` states, the same for all or by rank."""
    node, context = context.resolve(node)
    kinds = {*RAISE_KINDS, _NONE}
    if isinstance(node, Mapping) and not (node.entries and set(node.words()) <= kinds):
        return choosing.per_rank(node, context, _raise_spec)
    return _raise_spec(node, context)


def _is_spec(node: Mapping) -> bool:
    return len(node.entries) == 1 and node.words()[0] in (*RAISE_KINDS, _NONE)


def _raise_spec(node: Node, context: Context) -> RaiseSpec:
    """Return `timeout`, `[timeout, peer_lost]`, `{timeout: "substring"}` or `none`."""
    node, context = context.resolve(node)
    match node:
        case Mapping() if _is_spec(node):
            key, said = node.entries[0]
            if not isinstance(said, Scalar) or said.value is None:
                choosing.wrong_type(said, context, "what the message contains", "text")
                return RaiseSpec(kinds=(key_text(key),), mark=node.mark)
            return RaiseSpec(kinds=(key_text(key),), contains=said.text, mark=node.mark)
        case Mapping() if node.entries and set(node.words()) <= {*RAISE_KINDS, _NONE}:
            context.faults.add(
                "bad_value",
                "several kinds of error, each with words of its own",
                node.entries[1][0].mark,
                "write one kind with its words, a list of kinds, or a mapping from ranks",
            )
            return RaiseSpec(kinds=(), mark=node.mark)
        case Mapping():
            key = node.entries[0][0] if node.entries else node
            word = key_text(key)
            context.faults.unknown(
                "unknown_kind",
                f"`{word}` is no kind of error",
                word,
                RAISE_KINDS,
                key.mark,
                listed="kinds are",
            )
            return RaiseSpec(kinds=(), mark=node.mark)
        case Sequence():
            kinds = [_kind(item, context, RAISE_KINDS) for item in node.items]
            if not kinds:
                context.faults.add(
                    "bad_value", "an empty list of kinds", node.mark, "write `none` instead"
                )
            return RaiseSpec(kinds=tuple(kind for kind in kinds if kind), mark=node.mark)
        case _:
            kind = _kind(node, context, (*RAISE_KINDS, _NONE))
            return RaiseSpec(kinds=(kind,) if kind and kind != _NONE else (), mark=node.mark)


def _kind(node: Node, context: Context, known: tuple[str, ...]) -> str | None:
    return words.fixed(node, context, known, code="unknown_kind", what="kind of error")
