"""What backends make of what the semantics leave open."""

from __future__ import annotations

from torch_scenarios.model.traits import TRAITS, traits_of


def test_what_leaves_early_for_sure_is_less_than_what_may() -> None:
    assert all(traits.early_bytes <= traits.held_bytes for traits in TRAITS.values())


def test_a_backend_that_nobody_described_is_taken_for_one_that_buffers_nothing() -> None:
    borrowed = traits_of("borrowed")
    assert "borrowed" not in TRAITS
    assert (borrowed.early_bytes, borrowed.held_bytes) == (0, 0)
    assert borrowed.tags
