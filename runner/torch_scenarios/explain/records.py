"""The findings that a record alone has: ranks that never meet, and one that comes too late."""

from __future__ import annotations

from torch_scenarios.errors import Explanation

RECORDS: tuple[Explanation, ...] = (
    Explanation(
        code="never_meets",
        sort="finding of a record",
        what="The ranks of a job can never meet in `init_process_group`.",
        why="Each rank says what it passes there before torch's call: its rank, the size of the "
        "world, the address and the backend. Where these differ, a rank is there twice or not at "
        "all, or the port is another program's, torch waits until its timeout and names no cause.",
        fix="give every rank the same address, port, backend and size of the world, and each rank "
        "a number of its own; the finding names the rank and what it passes.",
    ),
    Explanation(
        code="timeout_too_short",
        sort="finding of a record",
        what="One rank is late, and the timeout of another one strikes first.",
        why="The program is right, and slow on one rank: it loads data, compiles or writes a "
        "checkpoint while the others wait. The timeout of the group strikes first.",
        fix="give the group a longer `timeout=` (of `init_process_group` or `new_group`), or do "
        "what takes so long on every rank, or before the ranks meet.",
    ),
)
