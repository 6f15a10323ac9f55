"""The language server, asked by a real client over standard input and output."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, warn-return-any=False

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from torch_scenarios.editor.names import names_in, occurrences
from torch_scenarios.editor.place import place_at

pygls = pytest.importorskip("pygls")
from lsprotocol import types as lsp  # noqa: E402 -- it comes with pygls
from pygls.lsp.client import LanguageClient  # noqa: E402

TEXT = """\
world_size: 4
groups: {even: [0, 2]}
tensors: {x: "full(2, rank + 1)"}
steps:
  - name: sum of x
    all_reduce: {tensor: x, group: even}
  - all_reduce: {tensor: x, op: summ}
"""


async def talk(file: Path, text: str, ask: Any) -> Any:
    """Start a server, open a text, wait for its diagnostics, and ask."""
    client = LanguageClient("test", "1")
    heard: list[lsp.PublishDiagnosticsParams] = []
    came = asyncio.Event()

    @client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
    def hear(params: lsp.PublishDiagnosticsParams) -> None:
        heard.append(params)
        came.set()

    await client.start_io(sys.executable, "-m", "torch_scenarios.cli", "lsp")
    try:
        await client.initialize_async(
            lsp.InitializeParams(
                capabilities=lsp.ClientCapabilities(), root_uri=file.parent.as_uri()
            )
        )
        client.initialized(lsp.InitializedParams())
        item = lsp.TextDocumentItem(uri=file.as_uri(), language_id="yaml", version=1, text=text)
        client.text_document_did_open(lsp.DidOpenTextDocumentParams(text_document=item))
        await asyncio.wait_for(came.wait(), 120)
        answer = await ask(client, lsp.TextDocumentIdentifier(uri=file.as_uri()))
        await client.shutdown_async(None)
        client.exit(None)
        return heard[0].diagnostics, answer
    finally:
        await client.stop()


def run(talk: Coroutine[Any, Any, Any]) -> Any:
    """Run a client in a thread: that of the tests may have a loop, which a browser left."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, talk).result()


def test_a_client_is_answered(tmp_path: Path) -> None:
    async def ask(client: LanguageClient, document: lsp.TextDocumentIdentifier) -> dict[str, Any]:
        everything = lsp.Range(start=lsp.Position(6, 0), end=lsp.Position(6, 40))
        return {
            "edits": await client.text_document_code_action_async(
                lsp.CodeActionParams(
                    text_document=document,
                    range=everything,
                    context=lsp.CodeActionContext(diagnostics=[]),
                )
            ),
            "words": await client.text_document_completion_async(
                lsp.CompletionParams(text_document=document, position=lsp.Position(6, 33))
            ),
            "page": await client.text_document_hover_async(
                lsp.HoverParams(text_document=document, position=lsp.Position(5, 6))
            ),
            "defined": await client.text_document_definition_async(
                lsp.DefinitionParams(text_document=document, position=lsp.Position(5, 36))
            ),
        }

    diagnostics, answer = run(talk(tmp_path / "sum.yaml", TEXT, ask))
    (wrong,) = diagnostics
    assert (wrong.code, wrong.range.start, wrong.range.end) == (
        "unknown_op",
        lsp.Position(6, 32),
        lsp.Position(6, 36),
    )
    (edit,) = answer["edits"]
    assert edit.title == "write `sum` in place of `summ`"
    assert [each.new_text for each in edit.edit.changes[(tmp_path / "sum.yaml").as_uri()]] == [
        "sum"
    ]
    assert [each.label for each in answer["words"]] == ["sum"]
    assert answer["page"].contents.value.startswith(
        "**all_reduce**\n\nReduce a tensor over the group"
    )
    assert "- `op` *(default sum)*: How the" in answer["page"].contents.value
    assert answer["defined"].range.start == lsp.Position(1, 9)


def test_values_ranks_and_names_of_a_right_text(tmp_path: Path) -> None:
    right = TEXT.replace("summ", "sum")

    async def ask(client: LanguageClient, document: lsp.TextDocumentIdentifier) -> dict[str, Any]:
        return {
            "value": await client.text_document_hover_async(
                lsp.HoverParams(text_document=document, position=lsp.Position(6, 25))
            ),
            "ranks": await client.text_document_hover_async(
                lsp.HoverParams(text_document=document, position=lsp.Position(5, 36))
            ),
            "renamed": await client.text_document_rename_async(
                lsp.RenameParams(
                    text_document=document, position=lsp.Position(5, 25), new_name="grad"
                )
            ),
            "taken": await client.text_document_rename_async(
                lsp.RenameParams(
                    text_document=document, position=lsp.Position(5, 25), new_name="even"
                )
            ),
        }

    diagnostics, answer = run(talk(tmp_path / "sum.yaml", right, ask))
    assert not diagnostics
    # ranks 0 and 2 have 1 + 3 each, then all four are summed: 4 + 2 + 4 + 4
    assert "rank 0: x = [14, 14]" in answer["value"].contents.value
    assert answer["ranks"].contents.value == "group `even`: ranks 0, 2"
    edits = answer["renamed"].changes[(tmp_path / "sum.yaml").as_uri()]
    assert [(each.range.start.line, each.new_text) for each in edits] == [
        (2, "grad"),
        (5, "grad"),
        (6, "grad"),
    ]
    assert answer["taken"] is None


def test_the_command_ends_with_0_where_the_editor_leaves() -> None:
    def letter(**what: Any) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", **what}).encode()
        return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)

    empty: dict[str, Any] = {"processId": None, "rootUri": None, "capabilities": {}}
    said = letter(id=1, method="initialize", params=empty)
    said += letter(method="initialized", params={})
    said += letter(id=2, method="shutdown") + letter(method="exit")
    done = subprocess.run(
        [sys.executable, "-m", "torch_scenarios.cli", "lsp"],
        input=said,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, b"")


#: 40 times 64 ranks add a tensor to itself: a second or so of analysis
LONG = """\
world_size: 64
tensors: {big: "full(20000, rank)"}
steps:
  - for: {i: "range(40)"}
    steps: [{compute: {big: "big + big[0]"}}]
  - all_reduce: {tensor: big}
"""


def test_a_long_analysis_keeps_no_other_text_from_an_answer(tmp_path: Path) -> None:
    async def ask(client: LanguageClient, document: lsp.TextDocumentIdentifier) -> list[str]:
        other = lsp.TextDocumentIdentifier(uri=(tmp_path / "long.yaml").as_uri())
        client.text_document_did_open(
            lsp.DidOpenTextDocumentParams(
                text_document=lsp.TextDocumentItem(
                    uri=other.uri, language_id="yaml", version=1, text=LONG
                )
            )
        )
        order: list[str] = []

        async def note(name: str, answer: Coroutine[Any, Any, Any]) -> None:
            assert await answer
            order.append(name)

        place = lsp.Position(5, 25)
        await asyncio.gather(
            note(
                "hover",
                client.text_document_hover_async(
                    lsp.HoverParams(text_document=other, position=place)
                ),
            ),
            note(
                "rename",
                client.text_document_rename_async(
                    lsp.RenameParams(text_document=other, position=place, new_name="large")
                ),
            ),
            note(
                "completion",
                client.text_document_completion_async(
                    lsp.CompletionParams(text_document=document, position=lsp.Position(6, 33))
                ),
            ),
        )
        return order

    _, order = run(talk(tmp_path / "sum.yaml", TEXT, ask))
    assert order == ["completion", "hover", "rename"]


def test_a_closed_text_is_forgotten(tmp_path: Path) -> None:
    """An editor counts from 1 again where a text is opened again, and shows what is wrong anew."""
    file = tmp_path / "sum.yaml"

    async def ask(client: LanguageClient, document: lsp.TextDocumentIdentifier) -> list[int]:
        shown: asyncio.Queue[int] = asyncio.Queue()

        client.protocol.fm.features[lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS] = lambda params: (
            shown.put_nowait(len(params.diagnostics))
        )
        client.text_document_did_close(lsp.DidCloseTextDocumentParams(text_document=document))
        closed = await asyncio.wait_for(shown.get(), 60)
        item = lsp.TextDocumentItem(uri=document.uri, language_id="yaml", version=1, text=TEXT)
        client.text_document_did_open(lsp.DidOpenTextDocumentParams(text_document=item))
        return [closed, await asyncio.wait_for(shown.get(), 60)]

    diagnostics, shown = run(talk(file, TEXT, ask))
    assert (len(diagnostics), shown) == (1, [0, 1])


@pytest.mark.parametrize(
    ("text", "path", "in_value", "prefix"),
    [
        ("wor", (), False, "wor"),
        ("steps:\n  - all_r", ("steps",), False, "all_r"),
        ("steps:\n  - all_reduce: {ten", ("steps", "all_reduce"), False, "ten"),
        ("steps:\n  - all_reduce: {tensor: x, op: s", ("steps", "all_reduce", "op"), True, "s"),
        ("steps:\n  - broadcast:\n      src", ("steps", "broadcast"), False, "src"),
        ("steps:\n  - barrier: {}\n    exp", ("steps",), False, "exp"),
        ("expect:\n  outcome: d", ("expect", "outcome"), True, "d"),
        ("expect:\n  outcome: [d", ("expect", "outcome"), True, "d"),
        ("tensors:\n  x: {dtype: int", ("tensors", "x", "dtype"), True, "int"),
        ("steps:\n  - send: {tensor: x,\n           ds", ("steps", "send"), False, "ds"),
        ("steps:\n  - send: {tensor: x,\n           dst: r", ("steps", "send", "dst"), True, "r"),
        ("expect: {x: [1],\n         diagnosis: [\n   m", ("expect", "diagnosis"), True, "m"),
        ("tensors: {x: [1, 2\nexp", (), False, "exp"),
        ("steps:\n  - send: {tensor: x\n  - bar", ("steps",), False, "bar"),
        ("name: 'a {b'\nst", (), False, "st"),
    ],
)
def test_a_place_in_a_text_that_is_half_written(
    text: str,
    path: tuple[str, ...],
    in_value: bool,  # noqa: FBT001 -- pytest passes it by name
    prefix: str,
) -> None:
    lines = text.splitlines()
    place = place_at(text, len(lines) - 1, len(lines[-1]))
    assert (place.path, place.in_value, place.prefix) == (path, in_value, prefix)


def test_names_are_found_also_in_what_is_no_yaml() -> None:
    for text in (TEXT, TEXT + "  - all_reduce: {tensor: "):
        names = names_in(text)
        assert (names.of("group"), names.of("tensor")) == (["even"], ["x"])


def test_prose_and_keywords_are_no_occurrences() -> None:
    text = "tensors: {tensor: 1}\nsteps:\n  - name: the tensor\n    all_reduce: {tensor: tensor}\n"
    assert [text[:start].count("\n") for start, _ in occurrences(text, "tensor")] == [0, 3]
