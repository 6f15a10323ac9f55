"""Problems of reading: the file, its bytes, its YAML."""

from __future__ import annotations

from runner.explanations.entry import Explanation

_PLAIN = """\
world_size: 2
tensors:
  x: [1, 2]
steps:
  - all_reduce: {tensor: x}
"""


def _problem(code: str, what: str, why: str, fix: str, example: str = "") -> Explanation:
    return Explanation(
        code=code,
        sort="problem",
        what=what,
        why=why,
        fix=fix,
        example=example,
        fixed=_PLAIN if example else "",
    )


READING: tuple[Explanation, ...] = (
    _problem(
        "file_not_found",
        "There is no file or folder of this name.",
        "Paths count from the folder you are in; those of `use` from the file that uses.",
        "name an existing file; the message names one of the same name where it is near.",
    ),
    _problem(
        "unreadable_file",
        "A file or folder exists but cannot be read.",
        "Its permissions forbid it, or it is no regular file.",
        "give it read permission, or name another.",
    ),
    _problem(
        "link_outside_project",
        "The file is a link to a file outside of its project.",
        "A scenario may come from a stranger, and a link in its place could show any file that you "
        "can read. The project is the nearest folder above with a pyproject.toml or .git, else the "
        "file's own folder.",
        "copy the file into the project, or pass --follow-links where you trust it, as for mounted "
        "configuration.",
    ),
    _problem(
        "file_too_large",
        "The file is larger than a scenario may be.",
        "A file may come from a stranger; its size is bounded before it is parsed.",
        "compute large tensors with an expression such as full(1000, 1), or raise the bound.",
    ),
    _problem(
        "too_many_problems",
        "More is wrong with the file than is told: its first problems are shown.",
        "What is wrong hundreds of times in one file mostly has one cause.",
        "mend what is told first, and check again.",
    ),
    _problem(
        "empty_file",
        "The file holds nothing, or only comments.",
        "A scenario needs at least a world_size and steps.",
        "`scenario new NAME` writes one to start from.",
        "# nothing yet\n",
    ),
    _problem(
        "not_utf8",
        "The file is not encoded in UTF-8.",
        "YAML files are Unicode text.",
        "save it as UTF-8.",
    ),
    _problem(
        "control_character",
        "The file holds a character that YAML does not allow.",
        "It came in by copying, or the file is no text.",
        "delete it; inside a quoted string write an escape.",
    ),
    _problem(
        "yaml_syntax",
        "The file is not YAML.",
        "A bracket or a quote is not closed, or the indentation does not fit.",
        "look at the place that the message names, and at the line before it.",
        "world_size: 2\nsteps: [\n",
    ),
    _problem(
        "yaml_tab",
        "A tab indents a line.",
        "YAML indents with spaces only.",
        "replace the tab by spaces.",
        "world_size: 2\nsteps:\n\t- barrier: {}\n",
    ),
    _problem(
        "duplicate_key",
        "A key stands twice in one mapping.",
        "YAML readers keep one of them in silence; which one would be luck.",
        "remove or rename one of them.",
        "world_size: 2\nworld_size: 3\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "bad_key",
        "A mapping stands where a key belongs.",
        "A key is a name, a number, or a list of ranks.",
        "write the key as a name; often a brace is one too many.",
        "world_size: 2\nsteps:\n  - barrier: {}\n{a: 1}: 2\n",
    ),
    _problem(
        "merge_key",
        "`<<` is no key of YAML 1.2.",
        "It is an extension of YAML 1.1.",
        "write the keys out, or refer to one whole value with an alias.",
        """\
world_size: 2
steps:
  - barrier: &all {}
  - barrier: {<<: *all}
""",
    ),
    _problem(
        "several_documents",
        "The file holds more than one YAML document.",
        "One file is one scenario.",
        "split it at `---`; a matrix makes many cases of one file.",
        "world_size: 2\nsteps:\n  - barrier: {}\n---\nworld_size: 3\n",
    ),
    _problem(
        "unknown_tag",
        "A value has a YAML tag that the language does not know.",
        "A tag could make a reader build any object; a scenario is data.",
        "remove the tag.",
        "world_size: !!python/int 2\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "unknown_alias",
        "An alias names an anchor that is not there.",
        "`*name` repeats what `&name` marked further up in the same file.",
        "define the anchor before it is used; quote a text that begins with `*`.",
        "world_size: *n\nsteps:\n  - barrier: {}\n",
    ),
    _problem(
        "recursive_alias",
        "An alias stands inside the very value that it repeats.",
        "It would have no end.",
        "write the inner value out.",
        "world_size: 2\nsteps: &all\n  - barrier: {}\n  - *all\n",
    ),
    _problem(
        "alias_expansion",
        "Aliases expand to more values than a file may hold.",
        "A few lines of nested aliases can stand for billions of values.",
        "use a `for` or a matrix to repeat; --max-anchor-expansion raises the bound.",
    ),
    _problem(
        "bad_scalar",
        "A value looks like a number or a date of YAML but cannot be one.",
        "YAML 1.2's core schema reads plain words; this one begins as a number and does not end "
        "as one.",
        "write the number in full, or quote a text.",
    ),
)
