"""What backends make of what the semantics leave open."""

from __future__ import annotations

from torch_scenarios.model.traits import CONFINED, TRAITS, Traits, traits_of


def test_what_leaves_early_for_sure_is_less_than_what_may() -> None:
    assert all(traits.early_bytes <= traits.held_bytes for traits in TRAITS.values())


#: facts that may show in any program, so that each is walked on a backend that has one
ANYWHERE: frozenset[str] = frozenset()


def test_each_fact_of_a_backend_says_in_which_programs_it_may_show() -> None:
    facts = frozenset(Traits.__struct_fields__)
    assert facts == CONFINED | ANYWHERE, (
        "begin with a new fact here: then each program is walked, which is slow. It is in CONFINED "
        "(model/traits.py) once `_is_concerned` of reference/backends.py and `is_untouched_by` of "
        "reference/vector/engine.py know where it shows, or where no forecast reads it"
    )


def test_a_backend_that_nobody_described_is_taken_for_one_that_buffers_nothing() -> None:
    borrowed = traits_of("borrowed")
    assert "borrowed" not in TRAITS
    assert (borrowed.early_bytes, borrowed.held_bytes) == (0, 0)
    assert borrowed.tags
