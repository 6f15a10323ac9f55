"""The language server: the protocol's requests, each answered by what the other modules know.

Texts are analysed in this one warm process, one at a time in another thread, within the
bounds of a file from a stranger and five seconds, so that a large text never keeps the others from
an answer. Of several versions of a text the last one counts; a closed text is forgotten.
"""

# mypy: disallow-subclassing-any=False, disallow-untyped-decorators=False, warn-return-any=False

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from lsprotocol import types as lsp
from msgspec.structs import replace
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path
from pygls.workspace import TextDocument

from torch_scenarios.editor.completion import offers
from torch_scenarios.editor.names import names_in, occurrences
from torch_scenarios.editor.place import place_at
from torch_scenarios.errors import Mark, Repair, ScenarioError
from torch_scenarios.language.document import load_content
from torch_scenarios.language.keys import FINAL_EXPECT, STEP_EXPECT, TOP
from torch_scenarios.limits import DEFAULT, OverdueError
from torch_scenarios.operations import BY_NAME
from torch_scenarios.pipeline.attempts import analyse, result_of
from torch_scenarios.pipeline.repair import Mistakes, look
from torch_scenarios.pipeline.results import Outcome
from torch_scenarios.report.operations import page_in_markdown
from torch_scenarios.report.text import Line, StepValues

#: seconds that the analysis of one text may take
LONGEST_S = 5.0
_LIMITS = replace(DEFAULT, max_seconds=LONGEST_S)
_WORD = re.compile(r"[\w.]+")
_SOURCE = "scenario"


class ScenarioServer(LanguageServer):
    """Holds what was found last in each open text.

    An analysis takes longer than a keystroke: it is begun anew for the newest text, and what was
    found of an older one is not shown.
    """

    def __init__(self) -> None:
        """Begin with no text open."""
        super().__init__("scenario", "1")
        self.found: dict[str, tuple[int | None, Mistakes]] = {}
        self.turn = asyncio.Lock()


def serve() -> None:
    """Answer on standard input and output until the editor leaves.

    pygls closes what it reads and writes: these are copies, so that the command ends as any other.
    """
    with os.fdopen(os.dup(0), "rb") as heard, os.fdopen(os.dup(1), "wb") as said:
        make_server().start_io(heard, said)


def make_server() -> ScenarioServer:
    """Return a server with every request that it answers."""
    server = ScenarioServer()
    server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)(_on_open)
    server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)(_on_change)
    server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)(_on_close)
    server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[" "]))(
        _complete
    )
    server.feature(lsp.TEXT_DOCUMENT_HOVER)(_hover)
    server.feature(lsp.TEXT_DOCUMENT_DEFINITION)(_define)
    server.feature(lsp.TEXT_DOCUMENT_RENAME)(_rename)
    server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION,
        lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix]),
    )(_act)
    return server


async def _on_open(server: ScenarioServer, params: lsp.DidOpenTextDocumentParams) -> None:
    await _diagnose(server, params.text_document.uri)


async def _on_change(server: ScenarioServer, params: lsp.DidChangeTextDocumentParams) -> None:
    await _diagnose(server, params.text_document.uri)


def _on_close(server: ScenarioServer, params: lsp.DidCloseTextDocumentParams) -> None:
    """Forget a text, and what the editor shows of it."""
    uri = params.text_document.uri
    server.found.pop(uri, None)
    server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri=uri, diagnostics=[]))


async def _diagnose(server: ScenarioServer, uri: str) -> None:
    """Analyse the last version of a text, and publish what is wrong with it.

    Texts wait in `server.turn` for each other. Who comes last finds that the version it would look
    at was looked at by another call, and returns: of ten keystrokes during an analysis one more is
    made, and not ten. A result for a text that has changed meanwhile is not shown, since its places
    are wrong.
    """
    async with server.turn:
        if not _is_open(server, uri):
            return
        document = _copy(server, uri)
        version = document.version
        if uri in server.found and server.found[uri][0] == version:
            return
        try:
            found = await asyncio.to_thread(look, _path(document), document.source, _LIMITS)
        except OverdueError as error:
            found = Mistakes(problems=(error.problem,))
        if not _is_open(server, uri):
            return
        server.found[uri] = version, found
        if server.workspace.get_text_document(uri).version != version:
            return
    server.text_document_publish_diagnostics(
        lsp.PublishDiagnosticsParams(
            uri=uri, version=version, diagnostics=_diagnostics(document, found)
        )
    )


def _is_open(server: ScenarioServer, uri: str) -> bool:
    return uri in server.workspace.text_documents


def _copy(server: ScenarioServer, uri: str) -> TextDocument:
    """Return a text as it is now: the editor's own changes while a thread reads it."""
    now = server.workspace.get_text_document(uri)
    return TextDocument(
        uri, now.source, now.version, now.language_id, position_codec=now.position_codec
    )


def _path(document: TextDocument) -> Path:
    return Path(to_fs_path(document.uri) or document.uri)


def _diagnostics(document: TextDocument, found: Mistakes) -> list[lsp.Diagnostic]:
    """Return what is wrong as the protocol has it, each at its place.

    Of a text that is invalid the problems are errors, else warnings; findings of the analysis are
    errors always. The title of a finding is followed by its reasons and its first hint.
    """
    invalid = found.is_invalid
    error, warning = lsp.DiagnosticSeverity.Error, lsp.DiagnosticSeverity.Warning
    made = [
        lsp.Diagnostic(
            range=_find_range(document, each.mark),
            message=each.message + (f"\n{each.hint}" if each.hint else ""),
            severity=error if invalid else warning,
            code=each.code,
            source=_SOURCE,
        )
        for each in found.problems
    ]
    made += [
        lsp.Diagnostic(
            range=_find_range(document, each.mark),
            message="\n".join((each.title, *each.because, *each.help[:1])),
            severity=error,
            code=each.kind,
            source=_SOURCE,
        )
        for each in found.findings
    ]
    return made


def _find_range(document: TextDocument, mark: Mark | None) -> lsp.Range:
    """Return a place as the client counts; the first line for what is in another file."""
    if mark is None or mark.source.path != str(_path(document)):
        return lsp.Range(start=lsp.Position(0, 0), end=lsp.Position(0, 0))
    start = mark.source.offset(mark.line, mark.column)
    end = start + 1
    if mark.end_column is not None:
        end = mark.source.offset(mark.end_line or mark.line, mark.end_column)
    return _make_range(document, start, end)


def _make_range(document: TextDocument, start: int, end: int) -> lsp.Range:
    return lsp.Range(
        start=document.client_position_at_offset(start), end=document.client_position_at_offset(end)
    )


# Code actions: the edits that the terminal names and `--fix` makes.


def _act(server: ScenarioServer, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    """Return the edits that mend what is wrong in a range; none for a text that has changed since.

    One that is sure (`--fix` would make it) is marked as preferred: editors apply it by a single
    key.
    """
    uri = params.text_document.uri
    document = server.workspace.get_text_document(uri)
    version, found = server.found.get(uri, (None, Mistakes()))
    if version != document.version:
        return []
    marked = [(each.mark, each.repair) for each in found.problems]
    marked += [(each.mark, each.repair) for each in found.findings]
    return [
        _action(document, repair)
        for mark, repair in marked
        if repair is not None
        and repair.source.path == str(_path(document))
        and _meet(_find_range(document, mark), params.range)
    ]


def _meet(one: lsp.Range, other: lsp.Range) -> bool:
    return one.start.line <= other.end.line and other.start.line <= one.end.line


def _action(document: TextDocument, repair: Repair) -> lsp.CodeAction:
    edits = [
        lsp.TextEdit(range=_make_range(document, edit.start, edit.end), new_text=edit.text)
        for edit in repair.edits
    ]
    return lsp.CodeAction(
        title=repair.title,
        kind=lsp.CodeActionKind.QuickFix,
        edit=lsp.WorkspaceEdit(changes={document.uri: edits}),
        is_preferred=repair.sure,
    )


# Completion, hover, definition, rename.


async def _complete(
    server: ScenarioServer, params: lsp.CompletionParams
) -> list[lsp.CompletionItem]:
    document = _copy(server, params.text_document.uri)
    return await asyncio.to_thread(_offer, document, params.position)


def _offer(document: TextDocument, position: lsp.Position) -> list[lsp.CompletionItem]:
    text, offset = document.source, document.offset_at_position(position)
    line = text.count("\n", 0, offset)
    place = place_at(text, line, offset - (text.rfind("\n", 0, offset) + 1))
    kind = lsp.CompletionItemKind.Value if place.in_value else lsp.CompletionItemKind.Property
    return [
        lsp.CompletionItem(
            label=word,
            kind=kind,
            documentation=about or None,
            insert_text=word if place.in_value else f"{word}: ",
        )
        for word, about in offers(place, names_in(text)).items()
    ]


def _word_at(document: TextDocument, position: lsp.Position) -> tuple[str, int, int] | None:
    """Return the word at a position with its first and last offset; None where there is none.

    A dotted name (`mesh.dp`) is one word, since a group is called so. A cursor right behind a word
    is at it.
    """
    text, offset = document.source, document.offset_at_position(position)
    start = text.rfind("\n", 0, offset) + 1
    end = text.find("\n", offset)
    for match in _WORD.finditer(text, start, len(text) if end < 0 else end):
        if match.start() <= offset <= match.end():
            return match[0], match.start(), match.end()
    return None


async def _hover(server: ScenarioServer, params: lsp.HoverParams) -> lsp.Hover | None:
    document = _copy(server, params.text_document.uri)
    word = _word_at(document, params.position)
    if word is None:
        return None
    name, start, end = word
    async with server.turn:
        about = await asyncio.to_thread(_explain, document, name, params.position.line + 1)
    if about is None:
        return None
    content = lsp.MarkupContent(kind=lsp.MarkupKind.Markdown, value=about)
    return lsp.Hover(contents=content, range=_make_range(document, start, end))


def _explain(document: TextDocument, name: str, line: int) -> str | None:
    """Return what a word means: an operation's page, a value by rank, the ranks of a group."""
    place = names_in(document.source).places.get(name)
    if place is not None and place.sort == "group":
        return _ranks(document, name)
    if place is not None and place.sort in {"tensor", "object"}:
        return _values(document, name, line)
    if name in BY_NAME:
        return page_in_markdown(BY_NAME[name])
    part = {**STEP_EXPECT, **FINAL_EXPECT, **TOP}.get(name)
    return None if part is None else f"`{name}`: {part.get('description', '')}"


def _ranks(document: TextDocument, name: str) -> str | None:
    try:
        (scenario, *_) = load_content(_path(document), document.source.encode(), limits=_LIMITS)
        plan = analyse(scenario, _LIMITS).plan
    except (ScenarioError, OverdueError, ValueError):
        return None
    groups = () if plan is None else plan.names.get(name, ())
    lists = "; ".join(", ".join(map(str, each.ranks)) for each in groups)
    return f"group `{name}`: ranks {lists}" if lists else None


def _values(document: TextDocument, name: str, line: int) -> str | None:
    """Return what each rank holds under a name after the step in a line, by the analysis.

    It is what `scenario show --values` prints of that step, less the lines of other names.
    """
    try:
        (scenario, *_) = load_content(_path(document), document.source.encode(), limits=_LIMITS)
        result = result_of(analyse(scenario, _LIMITS))
    except (ScenarioError, OverdueError, ValueError):
        return None
    shown: list[Line] = []
    values = StepValues(shown.extend, {result.file: [line]})
    values.finish(result)
    values.end(Outcome(results=(result,)))
    ranks = [
        each.text.strip() for each in shown if re.search(rf"\b{re.escape(name)} = ", each.text)
    ]
    text = "\n".join(ranks)
    return f"`{name}` after this step\n```text\n{text}\n```" if ranks else None


async def _define(server: ScenarioServer, params: lsp.DefinitionParams) -> lsp.Location | None:
    document = _copy(server, params.text_document.uri)
    word = _word_at(document, params.position)
    if word is None:
        return None
    place = (await asyncio.to_thread(names_in, document.source)).places.get(word[0])
    if place is None:
        return None
    return lsp.Location(uri=document.uri, range=_make_range(document, place.start, place.end))


async def _rename(server: ScenarioServer, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
    document = _copy(server, params.text_document.uri)
    word = _word_at(document, params.position)
    if word is None:
        return None
    async with server.turn:
        try:
            return await asyncio.to_thread(_change_name, document, word[0], params.new_name)
        except OverdueError:
            return None


def _change_name(document: TextDocument, old: str, new: str) -> lsp.WorkspaceEdit | None:
    """Rename something everywhere; nothing where the new name is taken or is not a name.

    What is not a name in this place is found by the analysis: a text with more mistakes than before
    is not taken.
    """
    text = document.source
    names = names_in(text).places
    if old not in names or new in names:
        return None
    places = occurrences(text, old)
    made = text
    for start, end in reversed(places):
        made = made[:start] + new + made[end:]
    before, after = (look(_path(document), each, _LIMITS) for each in (text, made))
    if len(after.all) > len(before.all):
        return None
    edits = [
        lsp.TextEdit(range=_make_range(document, start, end), new_text=new) for start, end in places
    ]
    return lsp.WorkspaceEdit(changes={document.uri: edits})
