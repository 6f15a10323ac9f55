"""The schema alone, in the language server that most editors have for YAML."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-calls=False, warn-return-any=False

from __future__ import annotations

import asyncio
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from torch_scenarios.files import schema_file
from torch_scenarios.vocabulary import BACKENDS, DIAGNOSES, DTYPES, OUTCOMES, REDUCE_OPS

pytest.importorskip("pygls")
from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

pytestmark = pytest.mark.nightly

SERVER = "yaml-language-server@2.0.0"
HEAD = f"""\
# yaml-language-server: $schema={schema_file("scenario.schema.json").resolve()}
world_size: 4
groups: {{even: [0, 2]}}
tensors: {{x: [1, 2]}}
"""
SETTINGS = {
    "completion": True,
    "hover": True,
    "validate": True,
    "schemaStore": {"enable": False},
}
MARKDOWN = lsp.TextDocumentClientCapabilities(
    hover=lsp.HoverClientCapabilities(content_format=[lsp.MarkupKind.Markdown])
)


#: the sort of a question and its text -> what a server answered
Answers = dict[tuple[str, str], Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the server, and return its command."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("the server runs on node, which is not installed")
    folder = tmp_path_factory.mktemp("server")
    made = subprocess.run(
        [npm, "install", "--prefix", str(folder), "--no-save", SERVER],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"npm does not install {SERVER}: {made.stderr.strip()[-200:]}")
    return folder / "node_modules" / "yaml-language-server" / "bin" / "yaml-language-server"


class Editor:
    """A client with one server, and the diagnostics that came last for each file."""

    def __init__(self, folder: Path) -> None:
        """Begin without a server."""
        self.folder = folder
        self.client = LanguageClient("test", "1")
        self.found: dict[str, list[lsp.Diagnostic]] = {}
        self.came = asyncio.Event()
        self.opened = 0

        @self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def hear(params: lsp.PublishDiagnosticsParams) -> None:
            self.found[params.uri] = list(params.diagnostics)
            self.came.set()

        @self.client.feature(lsp.WORKSPACE_CONFIGURATION)
        def configure(params: lsp.ConfigurationParams) -> list[Any]:
            return [SETTINGS if item.section == "yaml" else None for item in params.items]

    async def start(self, command: Path) -> None:
        """Start the server."""
        await self.client.start_io("node", str(command), "--stdio")
        asked = lsp.ClientCapabilities(
            workspace=lsp.WorkspaceClientCapabilities(configuration=True), text_document=MARKDOWN
        )
        await self.client.initialize_async(
            lsp.InitializeParams(capabilities=asked, root_uri=self.folder.as_uri())
        )
        self.client.initialized(lsp.InitializedParams())

    def open(self, text: str) -> tuple[lsp.TextDocumentIdentifier, lsp.Position]:
        """Open a text in which `|` is the cursor; return the document and where that is."""
        self.opened += 1
        before, _, after = (HEAD + text).partition("|")
        uri = (self.folder / f"it{self.opened}.yaml").as_uri()
        item = lsp.TextDocumentItem(uri=uri, language_id="yaml", version=1, text=before + after)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(text_document=item))
        at = lsp.Position(before.count("\n"), len(before.rpartition("\n")[2]))
        return lsp.TextDocumentIdentifier(uri=uri), at

    async def complete(self, text: str) -> dict[str, str]:
        """Return what is offered at the cursor, and what each means."""
        document, at = self.open(text)
        found = await self.client.text_document_completion_async(lsp.CompletionParams(document, at))
        items = found.items if isinstance(found, lsp.CompletionList) else found or []
        return {item.label: str(getattr(item.documentation, "value", "")) for item in items}

    async def hover(self, text: str) -> str:
        """Return the page at the cursor."""
        document, at = self.open(text)
        found = await self.client.text_document_hover_async(lsp.HoverParams(document, at))
        return str(getattr(getattr(found, "contents", None), "value", "")).replace("\\", "")

    async def diagnose(self, text: str) -> list[str]:
        """Return the messages about a text."""
        document, _ = self.open(text)
        while document.uri not in self.found:
            self.came.clear()
            await asyncio.wait_for(self.came.wait(), 60)
        return [each.message for each in self.found[document.uri]]


def ask(server: Path, folder: Path, questions: dict[str, tuple[str, ...]]) -> Answers:
    """Return the answers to questions of each sort, in one server."""

    async def talk() -> Answers:
        editor = Editor(folder)
        await editor.start(server)
        try:
            answers = {
                (sort, text): await getattr(editor, sort)(text)
                for sort, texts in questions.items()
                for text in texts
            }
            await editor.client.shutdown_async(None)
            editor.client.exit(None)
        finally:
            await editor.client.stop()
        return answers

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, talk()).result()


STEP = "steps:\n  - "
BARRIER = "steps:\n  - barrier: {}\n"
OFFERED = {
    STEP + "all_reduce: {tensor: x, op: |}\n": REDUCE_OPS,
    STEP + "all_reduce:\n      tensor: x\n      op: |\n": REDUCE_OPS,
    BARRIER + "expect: {outcome: |}\n": OUTCOMES,
    BARRIER + "expect:\n  outcome: |\n": OUTCOMES,
    BARRIER + "expect: {diagnosis: |}\n": tuple(DIAGNOSES),
    BARRIER + "expect: {diagnosis: [|]}\n": tuple(DIAGNOSES),
    BARRIER + "    expect: {x: {dtype: |}}\n": tuple(DTYPES),
    STEP + "all_reduce: {tensor: x, group: |}\n": ("world",),
    STEP + "all_reduce: {tensor: x, async_op: |}\n": ("true", "false"),
    STEP + "all_reduce: {tensor: x, o|}\n": ("op", "group", "async_op"),
    "backends: [|]\n" + BARRIER: BACKENDS,
}
HEADED = {
    STEP + "all_re|duce: {tensor: x}\n": "#### all_reduce\n\nReduce a tensor",
    STEP + "all_reduce: {tensor: x, o|p: max}\n": "#### op of all_reduce\n",
    STEP + "bar|rier:\n": "#### barrier\n",
    STEP + "batch_is|end_irecv: [{isend: {tensor: x, dst: 1}}]\n": "#### batch_isend_irecv\n",
    STEP + "comp|ute: {x: x + 1}\n": "#### compute\n",
    "st|eps:\n  - barrier: {}\n": "#### steps\n",
}
ACTION = "A step has one action, such as `all_reduce: {tensor: x}`, or an `expect`."
WRONG = {
    STEP + "allreduce: {tensor: x}\n": ["Property allreduce is not allowed.", ACTION],
    STEP + "name: it\n": [ACTION],
    STEP + "all_reduce: {op: sum}\n": ['Missing property "tensor".'],
    STEP + "all_reduce: {tensor: x, group: even, op: {premul_sum: 2}}\n": [],
    BARRIER + "    expect: {x: {0: [1, 2], else: unchanged}}\n": [],
}


def test_the_schema_alone_completes_explains_and_underlines(server: Path, tmp_path: Path) -> None:
    questions = {"complete": tuple(OFFERED), "hover": tuple(HEADED), "diagnose": tuple(WRONG)}
    answers = ask(server, tmp_path, questions)
    for text, words in OFFERED.items():
        assert set(words) <= answers["complete", text].keys(), text
    for text, head in HEADED.items():
        assert answers["hover", text].startswith(head), text
    for text, messages in WRONG.items():
        assert answers["diagnose", text] == messages, text
