"""Hostile files: what a stranger may send, and the exit code that it must end with.

To add one is to add a row. A row is the text of `x.yaml`, or what makes the project (a function of
its folder, beside which `../secret.txt` lies), the exit code, and a word that must be said.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: the exit codes: passed, failed, invalid, inconclusive
PASSED, FAILED, INVALID, INCONCLUSIVE = 0, 1, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One hostile file: how it is made, how it is given to `scenario`, how that must end."""

    name: str
    make: str | bytes | Callable[[Path], None]
    code: int
    says: str = ""
    command: tuple[str, ...] = ("check", "x.yaml")
    #: bytes that may be said: what a person reads, or a page with its program
    most_said: int = 20_000
    #: the limit at which it ends after seconds: an ordinary run takes a tenth of it
    limit: str = ""


HEAD = "world_size: 2\n"
ONE_STEP = "steps: [barrier: {}]\n"
SMALL = HEAD + ONE_STEP


def value(text: str) -> str:
    """Return a scenario with one tensor of that value."""
    return f'{HEAD}tensors: {{x: "{text}"}}\n{ONE_STEP}'


def training(*, weights: int, ranks: int, turns: int) -> str:
    """Return a model of one square layer that is trained in a loop."""
    data = f'"zeros([{weights}, {weights}])"'
    return (
        f"world_size: {ranks}\n"
        f"tensors: {{x: {data}, y: {data}}}\n"
        "models:\n"
        "  net:\n"
        f"    layers: [up: {{Linear: {{in_features: {weights}, out_features: {weights}}}}}]\n"
        "    loss: mse_loss\n"
        "    optimizer: {Adam: {lr: 0.1}}\n"
        "steps:\n"
        f'  - for: {{i: "range({turns})"}}\n'
        "    steps:\n"
        "      - train: {model: net, input: x, target: y, batch: world}\n"
    )


def expanding(levels: int, width: int) -> str:
    """Return aliases that expand to width ** levels nodes: a billion laughs."""
    lines = [f"a0: &a0 [{', '.join(['1'] * width)}]"]
    lines += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * width)}]"
        for level in range(1, levels)
    ]
    return "parameters:\n" + "".join(f"  {line}\n" for line in lines) + SMALL


#: what YAML itself can be made to do
YAML = (
    Row(name="empty", make="", code=INVALID),
    Row(name="bytes_of_no_encoding", make=b"\xc3\x28\xa0\xa1", code=INVALID, says="not_utf8"),
    Row(name="utf_16", make=SMALL.encode("utf-16"), code=INVALID, says="not_utf8"),
    Row(name="zero_bytes", make=b"\0" * 4096, code=INVALID),
    Row(name="escape_as_a_byte", make=b"name: \x1b[2J\n", code=INVALID, says="control_character"),
    Row(name="python_object", make="!!python/object/apply:os.system [touch MARKER]", code=INVALID),
    Row(name="python_name", make=HEAD + "steps: !!python/name:os.system\n", code=INVALID),
    Row(name="python_module", make="!!python/module:os", code=INVALID),
    Row(
        name="python_new",
        make=HEAD + "steps: !!python/object/new:os.mkdir [MARKER]\n",
        code=INVALID,
    ),
    Row(name="binary_tag", make=HEAD + "steps: !!binary aGVsbG8=\n", code=INVALID),
    Row(name="own_tag", make=HEAD + "steps: !include ../secret.txt\n", code=INVALID),
    Row(name="tag_directive", make="%TAG ! tag:yaml.org,2002:python/\n---\n!name:os", code=INVALID),
    Row(name="billion_laughs", make=expanding(9, 9), code=INVALID),
    Row(name="alias_of_itself", make="a: &a [*a]\n" + SMALL, code=INVALID),
    Row(name="merge_key", make="a: &a {world_size: 2}\n<<: *a\n" + ONE_STEP, code=INVALID),
    Row(
        name="indented_for_ever", make="".join(" " * i + "a:\n" for i in range(1000)), code=INVALID
    ),
    Row(name="a_huge_exponent", make="world_size: 1e999999999\n" + ONE_STEP, code=INVALID),
    Row(name="infinitely_many_ranks", make="world_size: .inf\n" + ONE_STEP, code=INVALID),
    Row(name="many_documents", make="---\n1\n" * 50_000, code=INVALID),
    Row(name="many_comments", make="#\n" * 400_000, code=INVALID),
    Row(name="a_long_file", make="#" * (1 << 21), code=INVALID, says="file_too_large"),
    Row(name="lists_in_lists", make="[" * 100_000, code=INVALID),
    Row(name="mappings_in_mappings", make="{a: " * 50_000 + "}" * 50_000, code=INVALID),
    Row(name="a_long_number", make="world_size: " + "9" * 100_000 + "\n" + ONE_STEP, code=INVALID),
    Row(name="a_long_hex_number", make="world_size: 0x" + "f" * 100_000, code=INVALID),
    Row(name="a_long_key", make="a" * 900_000 + ": 1\n" + SMALL, code=INVALID),
    Row(name="quotes_without_end", make='name: "' + "a" * 900_000, code=INVALID),
    Row(name="nested_flow_quotes", make="a: [" + "'" * 100_001, code=INVALID),
)

#: expressions that want out, or want much
EXPRESSIONS = (
    Row(name="import", make=value("__import__('os').mkdir('MARKER')"), code=INVALID),
    Row(name="subclasses", make=value("().__class__.__bases__[0].__subclasses__()"), code=INVALID),
    Row(name="builtins", make=value("__builtins__"), code=INVALID),
    Row(name="globals_of_a_function", make=value("sum.__globals__"), code=INVALID),
    Row(name="open_a_file", make=value("open('../secret.txt')"), code=INVALID),
    Row(name="evaluate", make=value("eval('1')"), code=INVALID),
    Row(name="lambda", make=value("(lambda: 1)()"), code=INVALID),
    Row(name="walrus", make=value("[y := 1, y]"), code=INVALID),
    Row(name="formatted", make=value("f'{rank.__class__}'"), code=INVALID),
    Row(name="a_power_of_powers", make=value("9 ** 9 ** 9 ** 9"), code=INVALID),
    Row(name="a_wide_shift", make=value("1 << 10 ** 12"), code=INVALID),
    Row(name="a_list_repeated", make=value("[1] * 10 ** 12"), code=INVALID),
    Row(name="a_text_repeated", make=value("'a' * 10 ** 12"), code=INVALID),
    Row(name="a_long_range", make=value("[i for i in range(10 ** 12)]"), code=INVALID),
    Row(
        name="comprehensions_in_comprehensions",
        make=value("[[[k for k in range(9999)] for j in range(9999)] for i in range(9999)]"),
        code=INVALID,
    ),
    Row(name="a_large_tensor", make=value("zeros(10 ** 12)"), code=INVALID),
    Row(name="a_large_shape", make=value("zeros([10 ** 5, 10 ** 5, 10 ** 5])"), code=INVALID),
    Row(name="a_negative_shape", make=value("zeros(-1)"), code=INVALID),
    Row(name="a_large_eye", make=value("eye(10 ** 7)"), code=INVALID),
    Row(name="a_large_arange", make=value("arange(10 ** 13)"), code=INVALID),
    Row(name="a_large_linspace", make=value("linspace(0, 1, 10 ** 12)"), code=INVALID),
    Row(name="parentheses", make=value("(" * 1000 + "1" + ")" * 1000), code=INVALID),
    Row(name="minus_minus", make=value("-" * 3000 + "1"), code=INVALID),
    Row(name="not_not", make=value("not " * 900 + "1"), code=INVALID),
    Row(name="a_long_sum", make=value("+".join(["1"] * 1900)), code=INVALID),
    Row(name="a_long_expression", make=value("1" * 100_000), code=INVALID),
    Row(name="a_chain_of_comparisons", make=value("<".join(["1"] * 1500)), code=INVALID),
    Row(name="a_zero_byte", make=value("1\\0"), code=INVALID),
    Row(name="a_lone_surrogate", make=value("\\ud800"), code=INVALID),
)

#: programs that want many ranks, steps, groups, cases
PROGRAMS = (
    Row(name="many_ranks", make="world_size: 1000000000\n" + ONE_STEP, code=INVALID),
    Row(name="ranks_by_an_expression", make='world_size: "10 ** 9"\n' + ONE_STEP, code=INVALID),
    Row(
        name="a_long_loop",
        make=HEAD + 'steps: [{for: {i: "range(10 ** 9)"}, steps: [barrier: {}]}]\n',
        code=INVALID,
    ),
    Row(
        name="many_cases",
        make="matrix:\n" + "".join(f"  {name}: {list(range(100))}\n" for name in "abcdef") + SMALL,
        code=INVALID,
    ),
)

#: what names another file
FILES = (
    Row(
        name="use_of_an_absolute_path",
        make=HEAD + "steps: [use: {file: /etc/passwd}]\n",
        code=INVALID,
        says="use_outside_project",
    ),
    Row(
        name="use_of_a_file_outside",
        make=HEAD + "steps: [use: {file: ../secret.txt}]\n",
        code=INVALID,
        says="use_outside_project",
    ),
    Row(
        name="use_of_itself",
        make="inputs: {}\nsteps: [use: {file: x.yaml}]\n",
        code=INVALID,
        says="use_cycle",
    ),
    Row(
        name="use_of_an_address",
        make=HEAD + "steps: [use: {file: 'http://localhost/x.yaml'}]\n",
        code=INVALID,
    ),
    Row(
        name="use_of_a_long_name",
        make=HEAD + f"steps: [use: {{file: {'a' * 100_000}.yaml}}]\n",
        code=INVALID,
    ),
    Row(
        name="use_of_a_zero_byte",
        make=HEAD + 'steps: [use: {file: "a\\0b"}]\n',
        code=INVALID,
    ),
)


def linked(to: str, *, used: bool = False) -> Callable[[Path], None]:
    """Return what puts a link into the project, and a right file beside it."""

    def make(project: Path) -> None:
        (project / "x.yaml").symlink_to(to)
        text = SMALL if not used else HEAD + "steps: [use: {file: x.yaml}]\n"
        (project / "right.yaml").write_text(text, encoding="utf-8")

    return make


def a_fifo(project: Path) -> None:
    """Put a FIFO into the project, and a right file beside it."""
    os.mkfifo(project / "x.yaml")
    (project / "right.yaml").write_text(SMALL, encoding="utf-8")


def a_folder(project: Path) -> None:
    """Put a folder that is named like a file into the project, and a right file beside it."""
    (project / "x.yaml").mkdir()
    (project / "x.yaml" / "y.yaml").write_text(SMALL, encoding="utf-8")
    (project / "right.yaml").write_text(SMALL, encoding="utf-8")


ALL = ("check", ".")
USER = ("check", "right.yaml")

#: what is no file of the project
PLACES = (
    Row(name="a_link", make=linked("../secret.txt"), code=INVALID, says="link_outside_project"),
    Row(
        name="a_link_that_is_met",
        make=linked("../secret.txt"),
        code=PASSED,
        says="file_passed_over",
        command=ALL,
    ),
    Row(
        name="a_link_in_strict",
        make=linked("../secret.txt"),
        code=FAILED,
        says="file_passed_over",
        command=("check", "--strict", "."),
    ),
    Row(
        name="a_link_formatted",
        make=linked("../secret.txt"),
        code=INVALID,
        says="link_outside_project",
        command=("fmt", "--diff", "x.yaml"),
    ),
    Row(
        name="a_link_listed",
        make=linked("../secret.txt"),
        code=INVALID,
        says="link_outside_project",
        command=("list", "x.yaml"),
    ),
    Row(
        name="a_link_shown",
        make=linked("../secret.txt"),
        code=INVALID,
        says="link_outside_project",
        command=("show", "x.yaml"),
    ),
    Row(
        name="a_link_blessed",
        make=linked("../secret.txt"),
        code=INVALID,
        says="link_outside_project",
        command=("bless", "x.yaml"),
    ),
    Row(
        name="a_link_minimized",
        make=linked("../secret.txt"),
        code=INVALID,
        says="link_outside_project",
        command=("minimize", "x.yaml"),
    ),
    Row(name="a_link_to_passwords", make=linked("/etc/passwd"), code=INVALID),
    Row(name="a_link_to_zeros", make=linked("/dev/zero"), code=INVALID, says="a device"),
    Row(name="a_link_to_itself", make=linked("x.yaml"), code=PASSED, command=ALL),
    Row(name="a_link_to_memory", make=linked("/proc/self/mem"), code=INVALID),
    Row(
        name="a_link_that_is_used",
        make=linked("../secret.txt", used=True),
        code=INVALID,
        says="use_outside_project",
        command=USER,
    ),
    Row(
        name="a_device_that_is_used",
        make=linked("/dev/zero", used=True),
        code=INVALID,
        says="use_outside_project",
        command=USER,
    ),
    Row(
        name="a_circle_that_is_used",
        make=linked("x.yaml", used=True),
        code=INVALID,
        command=USER,
    ),
    Row(name="a_fifo", make=a_fifo, code=INVALID, says="a FIFO"),
    Row(name="a_fifo_that_is_met", make=a_fifo, code=PASSED, says="a FIFO", command=ALL),
    Row(name="a_folder", make=a_folder, code=INVALID, says="a folder"),
    Row(name="a_folder_that_is_met", make=a_folder, code=PASSED, says="a folder", command=ALL),
)

#: a name that clears a screen, turns the direction of what follows, and looks like a command
STEERING = r"\e[2J\u202e\u2066\a\n::error title=x::y\r\x9b31m\u2028"
#: each of these words where a report shows it, in a scenario that fails and warns
WORDS = f"""\
name: "n{STEERING}"
description: "d{STEERING}"
tags: ["t{STEERING}"]
world_size: 2
backends: ["b{STEERING}"]
tensors: {{x: [1, 2]}}
objects: {{o: ["v{STEERING}", null]}}
steps:
  - name: "s{STEERING}"
    all_reduce: {{tensor: x}}
    expect: {{x: [3, 3]}}
  - ranks: "rank > 7"
    barrier: {{}}
  - all_gather_object: {{object_list: o, obj: null}}
    expect:
      o: ["w{STEERING}", 1]
  - ranks: 0
    name: "last{STEERING}"
    barrier: {{}}
"""
#: a faulty file of which every line holds what may not be shown
FAULTY = "".join(f'"k{number}{STEERING}": 1\n' for number in range(5)) + SMALL


def named(name: bytes, text: str = SMALL) -> Callable[[Path], None]:
    """Return what writes a scenario under a name of any bytes."""

    def make(project: Path) -> None:
        with Path(os.fsdecode(bytes(project) + b"/" + name)).open("w", encoding="utf-8") as file:
            file.write(text)

    return make


#: how a report is asked for, on standard output
REPORTS = {
    "lines": ("-v",),
    "json": ("--json", "-"),
    "jsonl": ("--jsonl", "-"),
    "tap": ("--tap", "-"),
    "markdown": ("--markdown", "-"),
    "junit": ("--junit", "-"),
    "html": ("--html", "-"),
    "trace": ("--trace", "-"),
    "github": ("--github",),
}
#: bytes of a report: of a text, of a page
MOST_SAID = (20_000, 200_000)
#: words, in every report
SAID = (
    *(
        row
        for name, options in REPORTS.items()
        for row in (
            Row(
                name=f"steering_words_in_{name}",
                make=WORDS,
                code=FAILED,
                command=("check", *options, "x.yaml"),
                most_said=MOST_SAID[name == "html"],
            ),
            Row(
                name=f"steering_keys_in_{name}",
                make=FAULTY,
                code=INVALID,
                command=("check", *options, "x.yaml"),
                most_said=MOST_SAID[name == "html"],
            ),
            Row(
                name=f"a_file_name_of_other_bytes_in_{name}",
                make=named(b"caf\xe9\x1b[2J\n::x.yaml", WORDS),
                code=FAILED,
                command=("check", *options, "."),
                most_said=MOST_SAID[name == "html"],
            ),
        )
    ),
    Row(name="steering_words_listed", make=WORDS, code=PASSED, command=("list", "-v", "x.yaml")),
    Row(name="steering_words_drawn", make=WORDS, code=PASSED, command=("show", "x.yaml")),
    Row(name="a_long_name", make=f"name: {'n' * 900_000}\n" + SMALL, code=INVALID, says="bad_name"),
    Row(
        name="a_long_tag", make=f"tags: [{'n' * 900_000}]\n" + SMALL, code=INVALID, says="bad_name"
    ),
    Row(
        name="a_long_tensor",
        make=HEAD + f"tensors: {{{'n' * 1000}: 1}}\n" + ONE_STEP,
        code=INVALID,
        says="bad_name",
    ),
    Row(
        name="a_long_step",
        make=HEAD + f"steps: [{{name: {'n' * 900_000}, barrier: {{}}}}]\n",
        code=INVALID,
        says="bad_name",
    ),
    Row(
        name="a_long_word_of_a_matrix",
        make=f"matrix: {{n: [{'n' * 900_000}]}}\n" + SMALL,
        code=PASSED,
        command=("check", "-v", "x.yaml"),
    ),
    Row(
        name="a_long_message",
        make=HEAD + f"steps: [{{ranks: 0, fault: {{raise: {'w' * 200_000}}}}}]\n",
        code=FAILED,
        most_said=2_000,
    ),
    Row(
        name="a_long_object",
        make=f"{HEAD}objects: {{o: [{'v' * 200_000}]}}\n"
        f"steps: [barrier: {{}}]\nexpect: {{o: [{'w' * 200_000}]}}\n",
        code=FAILED,
        most_said=2_000,
    ),
    Row(
        name="many_problems",
        make="".join(f"k{number}: 1\n" for number in range(3_000)) + SMALL,
        code=INVALID,
        says="too_many_problems",
        most_said=40_000,
    ),
    Row(name="a_near_miss", make="backends: [glo]\n" + SMALL, code=INVALID, says="unknown_word"),
    Row(
        name="an_unknown_backend",
        make="backends: [elsewhere]\n" + SMALL,
        code=PASSED,
        says="unknown_backend",
    ),
)


def loops(body: str, *, ranks: int = 2, tensors: str = "x: [1]", turns: str = "100000") -> str:
    """Return a scenario with one loop; `body` is the item of its list of steps."""
    head = f"world_size: {ranks}\ntensors: {{{tensors}}}\n"
    return f'{head}steps:\n- for: {{i: "range({turns})"}}\n  steps:\n  - {body}\n'


def lines(before: str, line: str, count: int, after: str = ONE_STEP) -> str:
    """Return a file with one line many times; `{0}` in it is its number."""
    return before + "".join(line.format(at) + "\n" for at in range(count)) + after


#: a comprehension of 250,000 products
PRODUCTS = "sum([a * b for a in range(500) for b in range(500)])"

#: a loop in a loop, in whose rounds no rank takes a step
IDLE = """\
world_size: {ranks}
steps:
- for: {{i: "range(100000)"}}
  steps:
  - for: {{j: "range(100000)"}}
    steps:
    - {step}
"""
NO_RANK = '{barrier: {}, ranks: "range(0)"}'
NO_TURN = '{for: {k: "range(0)"}, steps: [{barrier: {}}]}'

#: what would take time; `too_much_work` is the same verdict on every machine
TIME = (
    Row(
        name="idle_loops",
        make=IDLE.format(ranks=2, step=NO_RANK),
        code=INVALID,
        says="--limit ",
        limit="turns",
    ),
    Row(
        name="empty_loops",
        make=IDLE.format(ranks=2, step=NO_TURN),
        code=INVALID,
        says="--limit ",
        limit="turns",
    ),
    Row(
        name="idle_loops_of_many_ranks",
        make=IDLE.format(ranks=64, step=NO_RANK),
        code=INVALID,
        says="--limit ",
        limit="turns",
    ),
    Row(
        name="empty_loops_of_many_ranks",
        make=IDLE.format(ranks=64, step=NO_TURN),
        code=INVALID,
        says="too_many_turns",
        limit="turns",
    ),
    Row(
        name="a_comprehension_in_a_loop",
        make=loops(f'compute: {{x: "[{PRODUCTS}]"}}'),
        code=INVALID,
        says="too_much_work",
        limit="work",
    ),
    Row(
        name="a_comprehension_that_selects",
        make=loops(f'{{barrier: {{}}, ranks: "[{PRODUCTS} + i]"}}'),
        code=INVALID,
        says="too_much_work",
        limit="work",
    ),
    Row(
        name="a_comprehension_that_is_expected",
        make=loops(f'{{barrier: {{}}, expect: {{"{PRODUCTS}": 3}}}}'),
        code=INVALID,
        says="too_much_work",
        limit="work",
    ),
    Row(
        name="a_product_in_a_loop",
        make=loops('compute: {x: "matmul(m, m)[0]"}', tensors='x: [1], m: "ones([1000, 1000])"'),
        code=INVALID,
        says="too_much_work",
        limit="work",
    ),
    Row(
        name="a_product_of_integers",
        make=value("matmul(ones([2048, 2048], int64), ones([2048, 2048], int64))[0]"),
        code=INVALID,
        says="cannot_compute",
    ),
    Row(
        name="a_sum_in_a_loop",
        make=loops('compute: {x: "sum(exp(m)) + zeros(1)"}', tensors='x: [1], m: "ones(4000000)"'),
        code=INVALID,
        says="too_much_work",
        limit="work",
    ),
    Row(
        name="a_large_object_in_a_loop",
        make=f"""\
{HEAD}objects: {{o: {{expr: "[[[0] * 100] * 100] * 20"}}}}
steps:
- for: {{i: "range(10000)"}}
  steps:
  - broadcast_object_list: {{object_list: o, src: 0}}
""",
        code=INVALID,
        says="too_much_work",
        limit="work",
    ),
    Row(
        name="new_groups_in_a_loop",
        make=loops('new_group: {ranks: "range(64)", name: g}', ranks=64, turns="5000"),
        code=INVALID,
        says="too_much_work",
        limit="work",
    ),
    Row(
        name="works_that_are_never_waited_for",
        make=loops("{all_reduce: {tensor: x, async_op: true}, as: w}", turns="20000"),
        code=INVALID,
        says="too_much_work",
        limit="work",
    ),
    Row(
        name="receives_that_are_never_waited_for",
        make=loops("{irecv: {tensor: x, src: 1, tag: i}, ranks: 0, as: w}", turns="20000"),
        code=INVALID,
        says="too_much_work",
        limit="work",
    ),
    Row(
        name="many_groups",
        make=lines(HEAD + "groups:\n", "  g{0}: [0, 1]", 20_000),
        code=PASSED,
    ),
    Row(
        name="many_unknown_names",
        make=lines(HEAD + "tensors:\n", '  t{0}: "unknown{0} + 1"', 2_000),
        code=INVALID,
        says="too_many_problems",
        most_said=25_000,
    ),
    Row(
        name="many_unknown_keys",
        make=lines(SMALL, "keyword{0}: 1", 20_000, ""),
        code=INVALID,
        says="too_many_problems",
    ),
    Row(
        name="many_unknown_reduce_ops",
        make=lines(
            HEAD + "tensors: {x: [1]}\nsteps:\n",
            "- all_reduce: {{tensor: x, op: summ{0}}}",
            5_000,
            "",
        ),
        code=INVALID,
        says="too_many_problems",
    ),
    Row(
        name="one_key_many_times",
        make=lines(HEAD + "tensors:\n", "  x: [1]", 20_000),
        code=INVALID,
        says="duplicate_key",
    ),
    Row(
        name="many_parameters",
        make=lines(HEAD + "parameters:\n", "  p{0}: {0}", 20_000),
        code=PASSED,
    ),
    Row(
        name="many_anchors",
        make=lines(HEAD + "parameters:\n", "  p{0}: &a{0} 1", 20_000),
        code=PASSED,
    ),
    Row(
        name="many_cases_of_many_steps",
        make=lines(
            f"{HEAD}matrix: {{a: [{', '.join(map(str, range(1000)))}]}}\nsteps:\n",
            "- barrier: {{}}",
            9_999,
            "",
        ),
        code=INVALID,
        says="too_much_work",
        limit="work",
    ),
    Row(
        name="many_expectations",
        make=lines(
            HEAD + "tensors: {x: [1]}\nsteps:\n- barrier: {}\n  expect:\n",
            '    "x + {0}": ["{0} + 1"]',
            5_000,
            "",
        ),
        code=PASSED,
    ),
    Row(
        name="many_handles",
        make=lines(
            lines(HEAD + "tensors:\n", "  t{0}: [1]", 4_000, "steps:\n"),
            "- all_reduce: {{tensor: t{0}, async_op: true}}\n  as: h{0}",
            4_000,
            "",
        ),
        code=FAILED,
        says="missing_wait",
    ),
    Row(
        name="anyone_a_thousand_times",
        make="""\
world_size: 64
tensors: {x: [1]}
steps:
- for: {i: "range(1000)"}
  steps:
  - send: {tensor: x, dst: 0}
    ranks: "range(1, 64)"
  - for: {j: "range(63)"}
    steps:
    - recv: {tensor: x}
      ranks: 0
""",
        code=INVALID,
        says="--limit ",
    ),
    Row(
        name="orders_of_arrival_beside_many_receives_under_way",
        make="""\
world_size: 5
tensors: {x: "full(1, rank)", y: "zeros(1)", z: "zeros(400)"}
steps:
- for: {i: "range(400)"}
  steps: [{ranks: 0, irecv: {tensor: "z[i:i+1]", src: 1, tag: 7}, as: "h[i]"}]
- for: {i: "range(12)"}
  steps: [{ranks: 0, recv: {tensor: y}}, {ranks: 0, compute: {x: "x * 3 + y"}}]
- for: {i: "range(3)"}
  steps: [{ranks: "rank > 0", send: {tensor: "x + i", dst: 0}}]
- for: {i: "range(400)"}
  steps: [{ranks: 1, send: {tensor: x, dst: 0, tag: 7}}]
- {ranks: 0, wait: h}
expect: {diagnosis: message_race}
""",
        code=INCONCLUSIVE,
        says="--limit bytes=N",
        command=("check", "x.yaml", "--max-bytes", "8000000"),
    ),
)

#: durations that no one can wait for
DURATIONS = (
    *(
        Row(
            name=f"a_sleep_of_{text}",
            make=f"{HEAD}steps: [{{sleep: {text}}}]\n",
            code=INVALID,
            says="bad_duration",
        )
        for text in ("1000000000s", "1e300", ".nan", ".inf", "-1s", "3601s", "99999999999h")
    ),
    *(
        Row(
            name=f"a_timeout_of_{text}",
            make=f"{HEAD}timeout: {text}\n{ONE_STEP}",
            code=INVALID,
            says="bad_duration",
        )
        for text in ("1e300", ".nan", "-5s", "99999999999h")
    ),
    Row(
        name="a_sleep_by_an_expression",
        make=HEAD + 'steps: [{sleep: "10.0 ** 300"}]\n',
        code=INVALID,
        says="at most an hour",
    ),
)

#: what would take memory: counted before it is made
MEMORY = (
    Row(
        name="many_large_tensors",
        make=lines("world_size: 4\ntensors:\n", '  t{0}: "zeros(2**26)"', 40),
        code=INVALID,
        says="too_much_memory",
    ),
    Row(
        name="many_large_tensors_of_many_ranks",
        make=lines("world_size: 16\ntensors:\n", '  t{0}: "zeros(2**26)"', 40),
        code=INVALID,
        says="too_much_memory",
    ),
    Row(
        name="many_filled_shapes",
        make=lines("world_size: 4\ntensors:\n", "  t{0}: {{value: 0, shape: [67108864]}}", 40),
        code=INVALID,
        says="too_much_memory",
    ),
    Row(
        name="a_large_result",
        make="""\
world_size: 64
tensors: {x: "zeros(2**20)", y: "zeros(64 * 2**20)"}
steps: [all_gather_into_tensor: {output_tensor: y, input_tensor: x}]
""",
        code=INVALID,
        says="too_much_memory",
    ),
    Row(
        name="large_values_in_a_loop",
        make=loops("all_reduce: {tensor: x}", ranks=8, tensors='x: "zeros(2**20)"'),
        code=INVALID,
        says="too_much_memory",
    ),
    Row(
        name="large_values_of_many_ranks_in_a_loop",
        make=loops("all_reduce: {tensor: x}", ranks=64, tensors='x: "zeros(2**17)"'),
        code=INVALID,
        says="too_much_memory",
    ),
    Row(
        name="a_training_of_many_weights",
        make=training(weights=2048, ranks=8, turns=1000),
        code=INVALID,
        says="too_much",
    ),
    Row(
        name="a_training_of_many_turns",
        make=training(weights=16, ranks=64, turns=20_000),
        code=INVALID,
        says="too_much",
    ),
    Row(
        name="a_list_of_tensors",
        make=value("[ones(2**20) for i in range(10000)]"),
        code=INVALID,
    ),
    Row(
        name="a_long_concat", make=value("concat([ones(2**20) for i in range(1000)])"), code=INVALID
    ),
    Row(name="an_outer_product", make=value("ones([2**20, 1]) * ones([1, 2**20])"), code=INVALID),
    Row(name="a_large_random", make=value("random([10**6, 10**6], 1)"), code=INVALID),
    Row(
        name="a_group_of_many",
        make=HEAD + 'groups: {g: "range(10**12)"}\n' + ONE_STEP,
        code=INVALID,
    ),
    Row(
        name="a_large_mesh",
        make=HEAD + "groups: {m: {shape: [1000000000, 1000000000], dims: [a, b]}}\n" + ONE_STEP,
        code=FAILED,
        says="invalid_argument",
    ),
    Row(
        name="a_loop_of_many",
        make=loops("barrier: {}", turns="10**12"),
        code=INVALID,
    ),
    Row(
        name="a_large_object",
        make=HEAD + 'objects: {o: {expr: "[[0] * 200000] * 1000"}}\n' + ONE_STEP,
        code=INVALID,
    ),
)

TABLE = (*YAML, *EXPRESSIONS, *PROGRAMS, *FILES, *PLACES, *SAID, *TIME, *DURATIONS, *MEMORY)
