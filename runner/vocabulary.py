"""The fixed words of the scenario language: names that a file takes from a closed list."""

from __future__ import annotations

# -------------------------------------------------------------------------------------------------
# The fixed words of the scenario language: names that a file takes from a closed list.
#
# Dtypes and reduce ops are torch's own; the rest are the language's, and
# docs/reference/language.md says what each means.

OUTCOMES = ("completes", "deadlock", "error", "crash")

RAISE_KINDS = (
    "timeout",
    "shape_mismatch",
    "dtype_mismatch",
    "invalid_argument",
    "unsupported",
    "peer_lost",
    "not_member",
    "aborted",
    "out_of_memory",
    "other",
)

DIAGNOSES = (
    "circular_wait",
    "missing_participant",
    "call_mismatch",
    "root_mismatch",
    "op_mismatch",
    "dtype_mismatch",
    "shape_mismatch",
    "tag_mismatch",
    "unmatched_send",
    "unmatched_recv",
    "group_order",
    "group_creation",
    "buffering_hazard",
    "message_race",
    "buffer_race",
    "missing_wait",
    "double_wait",
    "not_equivalent",
    "undefined_read",
    "invalid_argument",
)

DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)

REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")


# -------------------------------------------------------------------------------------------------
# The name of the default group.

WORLD = "world"
