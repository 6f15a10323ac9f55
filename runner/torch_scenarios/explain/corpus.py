"""The corpus as a textbook: its subjects, and the one sentence that each of its files teaches."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from torch_scenarios.files import corpus_folder
from torch_scenarios.limits import DEFAULT
from torch_scenarios.source.tree import Mapping, Scalar, read_tree

#: a folder of the corpus, in the order of a textbook -> what its scenarios are about
SUBJECTS = {
    "p2p": "Messages between two ranks: send, receive, batches, and receives from any rank",
    "collectives": "Collectives that every member calls and every member gets",
    "rooted": "Collectives with a root: gather, scatter, reduce",
    "barrier": "Barriers",
    "groups": "Groups, meshes, and ranks inside them",
    "objects": "Collectives of Python objects",
    "dtypes": "What each dtype can hold and each backend can reduce",
    "async": "Asynchronous work and its waits",
    "rpc": "Functions that one rank calls on another",
    "compute": "Computing on tensors between two calls",
    "language": "The language of scenarios itself",
    "training": "Patterns of training: data, tensor, pipeline and expert parallel, sharding",
    "strategies": "torch's own strategies against one process: DDP, FSDP2, pipelines, DTensor",
    "algorithms": "The algorithms of collectives, as messages",
    "faults": "Ranks that die, raise, or are late",
    "surprises": "What Gloo does without a word",
    "nccl": "What is different on NCCL",
    "reported": "Hangs that people have reported, with their corrections",
    "recorded": "Programs that were recorded while they ran",
    "wrong": "Each diagnosis as four programs, with their corrections",
}


class Example(Struct, frozen=True, kw_only=True):
    """A file of the corpus: its name for `--from`, and the first sentence of its description.

    p2p/send_recv       `scenario new --from p2p/send_recv mine.yaml` begins with that file
    """

    name: str
    path: Path
    lesson: str


def examples(subject: str) -> list[Example]:
    """Return the files of one subject, by name; none where the folder is not there."""
    folder = corpus_folder()
    return [
        Example(name=str(path.relative_to(folder).with_suffix("")), path=path, lesson=_lesson(path))
        for path in sorted((folder / subject).rglob("*.yaml"))
    ]


def _lesson(path: Path) -> str:
    tree = read_tree(str(path), path.read_bytes(), limits=DEFAULT)
    about = tree.get("description") if isinstance(tree, Mapping) else None
    return first_sentence(about.text) if isinstance(about, Scalar) else ""


def first_sentence(text: str) -> str:
    """Return a text up to the first full stop before a new sentence."""
    flat = " ".join(text.split())
    found = re.match(r".*?[.!?](?=[\"']?\s+[^a-z\s])", flat)
    return found[0] if found else flat
