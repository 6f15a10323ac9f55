"""The findings of a FAILED scenario, the warnings of one that passes, and the kinds of errors."""

from __future__ import annotations

from torch_scenarios.errors import Explanation

# -------------------------------------------------------------------------------------------------
# The findings of a FAILED scenario (what disagrees), and the warnings of one that passes.


def _explain_finding(
    code: str, what: str, why: str, fix: str, example: str = "", fixed: str = ""
) -> Explanation:
    return Explanation(
        code=code, sort="finding", what=what, why=why, fix=fix, example=example, fixed=fixed
    )


_SUM = """\
world_size: 2
tensors:
  x: "full(2, rank + 1)"
steps:
  - all_reduce: {{tensor: x}}
    expect:
      {expected}
"""
_RIGHT = _SUM.format(expected="x: [3, 3]")

_STUCK = """\
world_size: 2
steps:
  - ranks: 0
    barrier: {{}}
expect:
  outcome: deadlock
  blocked: {blocked}
  diagnosis: missing_participant
"""

_GATHERED = """\
world_size: 3
tensors:
  x: "full(2, rank)"
  total: [0, 0]
steps:
  - ranks: [1, 2]
    send: {{tensor: x, dst: 0}}
  - for: {{k: "range(2)"}}
    steps:
      - ranks: 0
        recv: {{tensor: x}}
      - ranks: 0
        compute: {{total: "total + x"}}
expect:
  {expected}
"""

_PLACED = """\
world_size: 2
groups: {{mesh: {{shape: [2], dims: [dp]}}}}
tensors:
  t: [1, 2, 3]
steps:
  - distribute_tensor: {{tensor: t, device_mesh: mesh, placements: [Shard(0)]}}
    expect:
      t: {{placements: {placements}}}
"""

FINDINGS: tuple[Explanation, ...] = (
    _explain_finding(
        "value_differs",
        "A value is not what it must be, beyond the tolerance of its dtype.",
        "The report says which of the three disagrees with the others: your expectation (the "
        "semantics give something else), the backend (the run does), or the reference. The grid "
        "shows expected≠got by rank and index.",
        "correct the one that disagrees; `{value: ..., rtol: 1e-3}` loosens the comparison.",
        _SUM.format(expected="x: [3, 4]"),
        _RIGHT,
    ),
    _explain_finding(
        "holds_in_some_orders",
        "A stated value holds in some orders in which messages can arrive, and not in another.",
        "After a receive from anyone a run shows one order only, and the next run may show "
        "another. What a scenario states must hold in every one; the report names one in which it "
        "does not.",
        "state what every order gives (a sum, a count), name the source of the receive, or leave "
        "the value unstated.",
        _GATHERED.format(expected="x: {0: [2, 2]}\n  diagnosis: message_race"),
        _GATHERED.format(expected="total: {0: [3, 3]}"),
    ),
    _explain_finding(
        "no_such_order",
        "What the ranks held in a run fits no order in which the messages can arrive.",
        "Each value by itself may be right; together they are not. A message was lost, was taken "
        "twice, or overtook another of the same sender.",
        "it is a fault of the backend worth reporting.",
    ),
    _explain_finding(
        "shape_differs",
        "A tensor has another shape than the expectation.",
        "Shapes are compared strictly: a number is a scalar, [3] has one element, and nothing is "
        "broadcast.",
        "write the value in the tensor's own shape: full(2, 3) for two elements of 3.",
        _SUM.format(expected="x: 3"),
        _RIGHT,
    ),
    _explain_finding(
        "dtype_differs",
        "A tensor has another dtype than the expectation states.",
        "A dtype is compared only where the long form states it.",
        "state the tensor's own dtype, or none.",
        _SUM.format(expected="x: {value: [3, 3], dtype: float64}"),
        _RIGHT,
    ),
    _explain_finding(
        "placements_differ",
        "A distributed tensor lies otherwise on its mesh than the expectation states.",
        "`placements` has an entry for each mesh dimension, the outermost first.",
        "state how it lies, or move it: `redistribute`.",
        _PLACED.format(placements="[Replicate()]"),
        _PLACED.format(placements="[Shard(0)]"),
    ),
    _explain_finding(
        "value_missing",
        "A name that is expected does not exist on that rank, or holds no tensor.",
        "A name that no branch of a per-rank mapping gives a value does not exist there.",
        "expect it only on the ranks that hold it: `y: {0: [1, 2]}`.",
        """\
world_size: 2
tensors:
  y: {0: [1, 2]}
steps:
  - barrier: {}
expect:
  y: [1, 2]
""",
        """\
world_size: 2
tensors:
  y: {0: [1, 2]}
steps:
  - barrier: {}
expect:
  y: {0: [1, 2]}
""",
    ),
    _explain_finding(
        "raises_differs",
        "A step raised something else than `raises` states, or nothing.",
        "Kinds do not depend on a backend's wording; after a timeout a peer may see `peer_lost`.",
        "state every kind that may come: `raises: [timeout, peer_lost]`.",
        """\
world_size: 2
steps:
  - barrier: {}
    expect:
      raises: timeout
""",
        """\
world_size: 2
steps:
  - barrier: {}
    expect:
      raises: none
""",
    ),
    _explain_finding(
        "elapsed_differs",
        "A rank passed a step earlier or later than `elapsed` states.",
        "Seconds count from the scenario's beginning on that rank. A minimum must be guaranteed by "
        "the program (a `sleep` that it waits for), not by a slow machine.",
        "state the bounds that the program's sleeps and timeouts give.",
        """\
world_size: 2
steps:
  - sleep: "0.05 * rank"
  - barrier: {}
    expect:
      elapsed: {min: 1s}
""",
        """\
world_size: 2
steps:
  - sleep: "0.05 * rank"
  - barrier: {}
    expect:
      elapsed: {min: 0.04s, max: 10s}
""",
    ),
    _explain_finding(
        "within_exceeded",
        "The scenario took longer than `within` states.",
        "`within` bounds the whole scenario, or the time to the verdict of a deadlock.",
        "allow more time, or let the ranks sleep less.",
        """\
world_size: 2
steps:
  - sleep: 0.5s
expect:
  within: 0.1s
""",
        """\
world_size: 2
steps:
  - sleep: 0.1s
expect:
  within: 20s
""",
    ),
    _explain_finding(
        "outcome_differs",
        "The program ends otherwise than `outcome` states.",
        "The outcome is `completes` where nothing else is stated. Where the report names a backend "
        "(`on nccl`), it is a forecast: the same program, read once more with what that backend is "
        "known to do, such as a first message that waits on the host.",
        "correct the program, or state what it does and why: `outcome: deadlock` with `diagnosis`; "
        "what one backend alone does is stated in its section, `nccl: {outcome: deadlock}`.",
        """\
world_size: 2
steps:
  - ranks: 0
    barrier: {}
expect:
  diagnosis: missing_participant
""",
        _STUCK.format(blocked="{0: barrier}"),
    ),
    _explain_finding(
        "blocked_differs",
        "Other ranks are stuck than `blocked` states, or elsewhere.",
        "`blocked` states the ranks that no correct implementation could let pass, each at its "
        "step's name, its label (`send to 1`) or its operation; the run may add only ranks that "
        "are possibly blocked.",
        "state the ranks and steps that the analysis names (`scenario check -v` shows them).",
        _STUCK.format(blocked="{1: barrier}"),
        _STUCK.format(blocked="{0: barrier}"),
    ),
    _explain_finding(
        "dies_differs",
        "Other processes ended than `dies` states, or otherwise.",
        "`dies` maps a rank to a signal's name or `exit N`.",
        "state how the process really ends: SIGKILL after `fault: kill`.",
        """\
world_size: 1
steps:
  - fault: kill
expect:
  outcome: crash
  dies: {0: SIGABRT}
""",
        """\
world_size: 1
steps:
  - fault: kill
expect:
  outcome: crash
  dies: {0: SIGKILL}
""",
    ),
    _explain_finding(
        "diagnosis_undeclared",
        "The program is wrong in a way that `diagnosis:` does not state.",
        "It is found without starting a process, also where the backend at hand lets the program "
        "pass: it may hang or be wrong on the next.",
        "correct the program, or state the diagnosis. `scenario explain` knows each by name.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: work
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, async_op: true}
    as: work
  - wait: work
""",
    ),
    _explain_finding(
        "diagnosis_absent",
        "`diagnosis:` states a fault that the program does not have.",
        "What is stated must be there, so that a scenario of a fault cannot outlive the fault.",
        "remove it, or state the diagnosis that the message names.",
        """\
world_size: 2
steps:
  - barrier: {}
expect:
  diagnosis: missing_wait
""",
        """\
world_size: 2
steps:
  - barrier: {}
""",
    ),
    _explain_finding(
        "cost_differs",
        "The program takes other rounds, messages or bytes than `cost:` states.",
        "Values prove that a program is a collective, only its structure that it is the algorithm: "
        "a double tree that runs its trees one after the other holds the right values. Rounds are "
        "the longest chain of messages, in which b follows a if the rank that posts b has returned "
        "from a step that completes with a.",
        "state what `scenario cost` shows, or let steps go on together that need not wait.",
        """\
world_size: 2
tensors: {x: [1]}
steps:
  - send: {tensor: x, dst: 1}
    ranks: 0
  - recv: {tensor: x, src: 0}
    ranks: 1
expect:
  cost: {messages: 2}
""",
        """\
world_size: 2
tensors: {x: [1]}
steps:
  - send: {tensor: x, dst: 1}
    ranks: 0
  - recv: {tensor: x, src: 0}
    ranks: 1
expect:
  cost: {messages: 1}
""",
    ),
    _explain_finding(
        "expectation_unreached",
        "No rank is ever selected for what is expected: it is never compared.",
        "No case of the file has a rank that takes the step, or that matches the key of a mapping "
        "by rank before another key does. A used part is judged over all its uses, `else` may "
        "match no rank, and where the program ends does not matter.",
        "name a rank that takes the step, or remove the expectation.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x}
    expect:
      x: {rank > 5: [9, 9], else: [2, 4]}
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x}
    expect:
      x: {rank > 0: [2, 4], else: [2, 4]}
""",
    ),
    _explain_finding(
        "conduct_differs",
        "On the backend a step did what the semantics do not allow.",
        "It hung where nothing blocks it, finished what cannot finish, or raised what nothing "
        "explains. The backend deviates, or the reference does.",
        "if it is a known fact about the backend, state it in the backend's own section of "
        "`expect`; otherwise it is a fault worth reporting.",
    ),
    _explain_finding(
        "calls_differ",
        "A model's steps say something else than is stated, or than the strategy says.",
        "`communicates` lists the calls of all steps of a model. What it does not list is compared "
        "as well: every call that carries floats, in the order of its group.",
        "state what the report shows, or look for what a rank calls that the others do not.",
    ),
)


def _explain_warning(
    code: str, what: str, why: str, fix: str, example: str, fixed: str
) -> Explanation:
    """Return the explanation of a warning; the example passes and has it."""
    return Explanation(
        code=code, sort="warning", what=what, why=why, fix=fix, example=example, fixed=fixed
    )


WARNINGS: tuple[Explanation, ...] = (
    _explain_warning(
        "truncated",
        "The program of some ranks goes on beyond what is written.",
        "The file says so with `truncated:`, as a record of a stopped run does. Nothing is "
        "derived from what lies beyond: what is found is wrong all the same, but that nothing is "
        "found does not mean that the program is right. A run in which a rank waits for such a "
        "rank is INCONCLUSIVE.",
        "record the program to its end, or leave `truncated:` out where what is written is all.",
        """\
world_size: 2
truncated: [1]
tensors: {x: [1, 2]}
steps:
  - ranks: 0
    send: {tensor: x, dst: 1}
""",
        """\
world_size: 2
tensors: {x: [1, 2]}
steps:
  - ranks: 0
    send: {tensor: x, dst: 1}
  - ranks: 1
    recv: {tensor: x, src: 0}
""",
    ),
    _explain_warning(
        "unknown_backend",
        "The scenario names a backend that is not known here.",
        "It runs only where a plugin registers a backend of that name; anywhere else it is "
        "UNSUPPORTED. A near miss of a known name (`glo`) is INVALID.",
        "name a known backend, or run it with the --plugin that registers its own.",
        """\
world_size: 2
backends: [my_own_fabric]
steps:
  - barrier: {}
""",
        """\
world_size: 2
backends: [gloo]
steps:
  - barrier: {}
""",
    ),
    _explain_warning(
        "gloo_differs",
        "On Gloo the program ends in another way than the semantics say.",
        "Nothing promises that end, and the program is right; but Gloo runs everywhere, and there "
        "it hangs, or may. A group that only its members create (`use_local_synchronization`) is "
        "named by torch after its ranks and the number of groups that the process is in, and its "
        "members look for each other under that name: a member that is in more groups than another "
        "looks elsewhere, and waits for the timeout (pytorch#173608). A name that was used before, "
        "for a group that was destroyed, may lead to addresses where no rank listens any more; one "
        "that the rank still uses is refused. With `--backend gloo` this is a failure.",
        "let all members be in equally many groups when they create it, create it without "
        "`use_local_synchronization` on every rank, or state what Gloo does under `gloo:` in "
        "`expect`.",
        """\
world_size: 3
steps:
  - ranks: [0, 1]
    new_group: {name: a, group_ranks: [0, 1], use_local_synchronization: true}
  - ranks: [1, 2]
    new_group: {name: b, group_ranks: [1, 2], use_local_synchronization: true}
""",
        """\
world_size: 3
steps:
  - new_group: {name: a, group_ranks: [0, 1]}
  - new_group: {name: b, group_ranks: [1, 2]}
""",
    ),
    _explain_warning(
        "outside_of_group",
        "A rank takes a collective on a group that it is not in.",
        "torch warns and returns at once, without a result: the call does nothing on that rank, "
        "and no member notices. Mostly `ranks:` or the group's ranks are not what was meant. A "
        "message there is refused (`not_member`).",
        "leave `ranks:` out: the members of a group take its steps.",
        """\
world_size: 4
groups:
  even: [0, 2]
tensors:
  x: [1]
steps:
  - ranks: [0, 1, 2]
    all_reduce: {tensor: x, group: even}
""",
        """\
world_size: 4
groups:
  even: [0, 2]
tensors:
  x: [1]
steps:
  - all_reduce: {tensor: x, group: even}
""",
    ),
    _explain_warning(
        "steps_apart",
        "Two different steps meet in one collective, with tensors of different names.",
        "Collectives of a group meet by their order, no matter what they carry. Where shapes "
        "agree, a rank that has left out a step adds its next tensor to another one of its "
        "peers, and nothing is raised. No expectation reads one of the two, so that it is not "
        "known whether they are meant to meet.",
        "state the result next to one of the steps if they are; else put the missing step back.",
        """\
world_size: 2
tensors:
  acc: [1, 2]
  f1: [3, 4]
steps:
  - ranks: 0
    all_reduce: {tensor: acc}
  - ranks: 1
    all_reduce: {tensor: f1}
""",
        """\
world_size: 2
tensors:
  acc: [1, 2]
  f1: [3, 4]
steps:
  - all_reduce: {tensor: acc}
  - all_reduce: {tensor: f1}
""",
    ),
    _explain_warning(
        "empty_slice",
        "A slice of a tensor has no element on any rank that takes the step.",
        "As in Python, a slice beyond the end is empty and nothing is raised, and so is one whose "
        "bounds are in the wrong order. The step then moves nothing. There is no warning about a "
        "slice that is empty on some ranks only, as `x[:rank]` on rank 0.",
        "correct the bounds, or pass the whole tensor.",
        """\
world_size: 2
tensors:
  x: [1, 2, 3, 4]
steps:
  - all_reduce: {tensor: "x[4:8]"}
""",
        """\
world_size: 2
tensors:
  x: [1, 2, 3, 4]
steps:
  - all_reduce: {tensor: "x[2:4]"}
""",
    ),
    _explain_warning(
        "file_passed_over",
        "A file of a folder is named like a scenario and is not read.",
        "It is a link that leads out of the project, or no regular file (a FIFO, a device, a "
        "folder named like a file). Where it is named itself, it is INVALID.",
        "remove it, copy the file into the project, or pass --follow-links.",
        "",
        "",
    ),
    _explain_warning(
        "need_refuted",
        "`needs` names a capability that the program does not use.",
        "The analysis finds what a case needs of a backend in what its ranks call: operations, "
        "tags, dtypes, groups. A word that it can refute is left out, so that no case is "
        "UNSUPPORTED on a backend that lacks what the case does without.",
        "leave the word out, or write the step that needs it.",
        """\
world_size: 2
needs: [bfloat16]
tensors: {x: [1]}
steps:
  - all_reduce: {tensor: x}
""",
        """\
world_size: 2
tensors: {x: {dtype: bfloat16, value: [1]}}
steps:
  - all_reduce: {tensor: x}
""",
    ),
    _explain_warning(
        "lacks_what_it_passes",
        "A plugin declares in `LACKS` what it has after all.",
        "A case that needs the word was run, and every value is right. It is UNSUPPORTED all the "
        "same, because the plugin says so.",
        "leave the word out of `LACKS`: then such cases count, and a fault in them is found.",
        "",
        "",
    ),
    _explain_warning(
        "backend_lacks",
        "The backend that `check` is asked for lacks what the program needs.",
        "A run there is UNSUPPORTED, because the scenario states what the semantics say and the "
        "backend does not have them. Where it is known what it makes of the program, the warning "
        "says so: a ring in which each rank receives before its message is sent completes on Gloo, "
        "and hangs on NCCL, which carries the messages of two ranks in the order of their calls.",
        "write the program without it (on NCCL: `batch_isend_irecv`), state under the backend's "
        "name in `expect` what it does, or list under `backends` those that the file is for.",
        "",
        "",
    ),
    _explain_warning(
        "step_without_ranks",
        "No rank takes the step.",
        "Its `ranks:` selects no rank of this world, or its group has no member. The step then "
        "asserts nothing, and a mistake in it is never seen.",
        "change its `ranks:` or its group, or remove the step.",
        """\
world_size: 2
steps:
  - barrier: {}
  - ranks: rank > 5
    barrier: {}
""",
        """\
world_size: 2
steps:
  - barrier: {}
""",
    ),
    _explain_warning(
        "group_before_creation",
        "A step uses a group that only a later step creates.",
        "No rank is in the group at that point, so that no rank takes the step.",
        "move the `new_group` before the step.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x, group: pair}
  - new_group: {name: pair}
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - new_group: {name: pair}
  - all_reduce: {tensor: x, group: pair}
""",
    ),
    _explain_warning(
        "outcome_open",
        "No outcome is stated, and the program may end in more than one way.",
        "Its fault leaves open how it ends: the source of a broadcast may leave before an absent "
        "leaf comes, or wait for it. Nothing stated means `completes`, and a run that ends "
        "otherwise is FAILED.",
        "state the outcome that must be, or a list of those that will do.",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    broadcast: {tensor: x, src: 0}
expect:
  diagnosis: missing_participant
""",
        """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - ranks: 0
    broadcast: {tensor: x, src: 0}
expect:
  outcome: [completes, deadlock]
  diagnosis: missing_participant
""",
    ),
)


# -------------------------------------------------------------------------------------------------
# The kinds of errors that `raises:` states.


def _kind(code: str, what: str, why: str) -> Explanation:
    return Explanation(code=code, sort="kind of error", what=what, why=why)


KINDS: tuple[Explanation, ...] = (
    _kind(
        "timeout",
        "A call gave up after the timeout of its group, or its own.",
        "A rank that it needed never came, or came too late. The group is unusable afterwards.",
    ),
    _kind(
        "peer_lost",
        "The connection to another rank was closed or reset.",
        "The other rank died, ended early, or gave up waiting itself: after one rank's timeout its "
        "peers may see either kind, so state `raises: [timeout, peer_lost]`.",
    ),
    _kind(
        "unsupported",
        "The backend cannot do this: an operation, a reduce op or a dtype that it lacks.",
        "What a backend can do is not part of the semantics; only the run can confirm it.",
    ),
    _kind(
        "not_member",
        "The rank is not in the group that it uses.",
        "torch gives a rank outside a group no handle that messages could be sent with.",
    ),
    _kind(
        "aborted",
        "The operation, or its communicator, was aborted from outside.",
        "A watchdog or another thread ended it, mostly after a failure elsewhere.",
    ),
    _kind(
        "out_of_memory",
        "There was no memory left, on the device or on the host.",
        "It says nothing about the program's communication: unless the scenario states it, such a "
        "run is inconclusive.",
    ),
    _kind(
        "other",
        "An error of no other kind, such as `fault: {raise: message}`.",
        'State a part of its words with `raises: {other: "words"}`.',
    ),
)
