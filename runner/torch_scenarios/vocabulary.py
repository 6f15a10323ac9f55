"""The fixed words of the scenario language: names that a file takes from a closed list."""

from __future__ import annotations

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

#: a diagnosis, and what is wrong with a program that has it, in a line
DIAGNOSES = {
    "circular_wait": "these ranks wait for each other, and none of them can go on",
    "missing_participant": "a rank that the others wait for never comes",
    "call_mismatch": "the ranks of a group call different operations in the same place",
    "root_mismatch": "the ranks of a group name different roots",
    "op_mismatch": "the ranks of a group name different reduce operations",
    "dtype_mismatch": "the ranks of one operation pass different dtypes",
    "shape_mismatch": "the ranks of one operation pass different shapes",
    "tag_mismatch": "a send and its receive carry different tags",
    "unmatched_send": "no rank ever receives this message",
    "unmatched_recv": "no rank ever sends this message",
    "group_order": "ranks call the operations of two groups in crossed order",
    "group_creation": "ranks disagree on the groups that they create",
    "buffering_hazard": "this program finishes only where the backend buffers what is sent",
    "message_race": "the result depends on which message arrives first",
    "buffer_race": "a tensor is touched while an asynchronous operation still uses it",
    "missing_wait": "an asynchronous operation is never waited for",
    "double_wait": "the same message is waited for twice",
    "not_equivalent": "this strategy does not compute what one process computes",
    "undefined_read": "a value is used that the operation leaves undefined",
    "invalid_argument": "torch refuses this call",
}

#: diagnoses of ranks that make one call and pass what differs
DISAGREEMENTS = frozenset({"root_mismatch", "op_mismatch", "dtype_mismatch", "shape_mismatch"})

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

#: names that torch gives to backends: its own, and those of well-known extensions; and `jax`, which
#: is one to `--framework` alone
BACKENDS = ("gloo", "nccl", "mpi", "ucc", "xccl", "hccl", "cncl", "fake", "jax")

REDUCE_OPS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")

#: words that an expression may compare a parameter with
FIXED_WORDS = frozenset((*DTYPES, *REDUCE_OPS, *BACKENDS))

#: what every expression may read: the backend of the run
BACKEND = "backend"


# The name of the default group.

WORLD = "world"
