"""What is read in a script that was recorded: who chooses by rank, what starts processes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from torch_scenarios.record.evidence.script import Script, script_at

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, text: str) -> Script:
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    script = script_at(str(path))
    assert script is not None
    return script


@pytest.mark.parametrize(
    ("line", "is_by_rank"),
    [
        ("width = 4 if rank == 0 else 5", True),
        ("width = 4 if is_main else 5", True),
        ('width = 4 if os.environ["LOCAL_RANK"] == "0" else 5', True),
        ('device = f"cuda:{rank}" if torch.cuda.is_available() else "cpu"', False),
        ("width = 4 if lora_rank > 2 else 5", False),
        ('width = 4 if os.environ.get("FAST") else 5', False),
        ("width = random.choice(4 if wide else 5)", False),
        ("width = rank", False),
    ],
)
def test_a_line_chooses_by_rank_where_its_condition_reads_the_rank(
    tmp_path: Path, line: str, *, is_by_rank: bool
) -> None:
    script = written(tmp_path, f"rank = dist.get_rank()\nis_main = rank == 0\n{line}\n")
    assert script.chooses(3) is is_by_rank


@pytest.mark.parametrize(
    ("line", "starts"),
    [
        ("mp.Process(target=work, args=(rank,)).start()", True),
        ("mp.spawn(work, args=(2,), nprocs=2)", True),
        ("mp.spawn(work, (2,), 2)", True),
        ("states = np.random.SeedSequence(1).spawn(4)", False),
        ("process = psutil.Process(pid)", False),
    ],
)
def test_a_line_starts_processes_where_it_gives_them_a_function(
    tmp_path: Path, line: str, *, starts: bool
) -> None:
    assert written(tmp_path, f"{line}\n").starts() == [1] * starts


OWN = """\
class Trainer:
    def __init__(self):
        {made}


def work(rank):
    Trainer()
"""


@pytest.mark.parametrize(
    ("text", "is_reached"),
    [
        ("def work(rank):\n    setup(rank)\ndef setup(rank):\n    init_process_group()\n", True),
        ("def work(rank):\n    trainer = Trainer(strategy='ddp')\n", True),
        (OWN.format(made="self.steps = 0"), False),
        (OWN.format(made="init_process_group()"), True),
    ],
)
def test_a_name_that_a_script_defines_is_its_own(
    tmp_path: Path, text: str, *, is_reached: bool
) -> None:
    script = written(tmp_path, text)
    assert script.reaches("work", {"init_process_group", "Trainer"}) is is_reached


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("def parse_args():\n    return parser.parse_args()\nrows = parse_args().rows\n", {2}),
        (
            "def first(x):\n    return second(x)\ndef second(x):\n    return first(x)\nfirst(1)\n",
            {2, 4},
        ),
        (
            'parser.add_argument("--rows", default=args.rows)\nn = args.rows\n',
            {1},
        ),
    ],
)
def test_what_a_function_gives_that_calls_one_of_its_own_name_is_followed_once(
    tmp_path: Path, text: str, lines: set[int]
) -> None:
    """`def parse_args(): ... return parser.parse_args()` is in most scripts of transformers."""
    script = written(tmp_path, text)
    last = script.tree.body[-1]
    assert isinstance(last, ast.Assign | ast.Expr)
    found = {at for _, at in script.traces(last.value, last.lineno)}
    assert lines <= found


def test_what_one_line_sets_to_several_values_is_read_from_its_own(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "size = config.size\nx, peer = torch.ones(size), 1 - dist.get_rank()\n"
        "if peer == 1:\n    pass\nif x.sum():\n    pass\n",
        encoding="utf-8",
    )
    source = script_at(str(file))
    assert source is not None
    peer, tensor = (each for each in source.tree.body if isinstance(each, ast.If))
    assert source.tests_rank(peer.test, 3)
    assert [at for _, at in source.traces(peer.test, 3)] == [2]
    assert [at for _, at in source.traces(tensor.test, 5)] == [2, 1]


def test_a_line_is_quoted_with_its_place_from_the_folder_on(tmp_path: Path) -> None:
    """A statement of several lines is quoted whole; a file beside the folder by its name alone."""
    script = written(
        tmp_path, "loss = step(\n    batch,\n)\nfor batch in loader:  # all\n    pass\n"
    )
    assert script.quote(1, str(tmp_path)) == "`loss = step(batch)` (train.py:1)"
    assert (
        script.quote(4, str(tmp_path.parent))
        == f"`for batch in loader` ({tmp_path.name}/train.py:4)"
    )
    assert script.place(4, "/elsewhere") == "train.py:4"
