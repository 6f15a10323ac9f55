"""What several commands have in common: paths, selection, parameters, bounds, reports."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from torch_scenarios import limits
from torch_scenarios.display import clean, short
from torch_scenarios.errors import ScenarioError, nearest
from torch_scenarios.files import project_root, read_file
from torch_scenarios.limits import Limits
from torch_scenarios.report.formats import FORMATS, Format

# -------------------------------------------------------------------------------------------------
# Help that stays readable with many options: they stand in groups, each under its title.

F = TypeVar("F", bound="Callable[..., Any] | click.Command")

WHICH = "Which cases, in which order"
HOW = "How they run"
REPORTS = "Reports (FILE may be - for standard output)"
BOUNDS = "Bounds on what a file may ask for"
OTHER = "Other"

_ORDER = (WHICH, HOW, REPORTS, BOUNDS, OTHER)


class GroupedOption(click.Option):
    """An option in a group of the help, under its title.

        Which cases      -k, --tag, --shard
        How they run     --backend, --isolate

    click lists options in one row; 40 of them are read only in sections.
    """

    def __init__(self, *names: Any, group: str = OTHER, **rest: Any) -> None:
        """Stand under the title `group`."""
        super().__init__(*names, **rest)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help has a section for each group of options.

    What the project's pyproject.toml fixes takes the place of the defaults, where the command
    selects scenarios.
    """

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Read what the project fixes before the command line, which says more."""
        if any(param.name == "paths" for param in self.params):
            extra.setdefault("default_map", read_configuration(self, Path.cwd()))
        return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read each `--limit NAME=N` as the option of that bound."""
        if any(param.name == "limit" for param in self.params):
            args = _expand_limits(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        found: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if not isinstance(parameter, click.Option):
                continue
            record = parameter.get_help_record(ctx)
            if record is not None:
                group = parameter.group if isinstance(parameter, GroupedOption) else OTHER
                found.setdefault(group, []).append(record)
        for group in sorted(found, key=lambda name: _ORDER.index(name) if name in _ORDER else -1):
            with formatter.section(group):
                formatter.write_dl(found[group])


def option(group: str, *names: str, **rest: Any) -> Callable[[F], F]:
    """Return a decorator that adds an option to a group."""
    return click.option(*names, cls=GroupedOption, group=group, **rest)


# -------------------------------------------------------------------------------------------------
# What a project fixes for all its members: the table [tool.scenario] of its pyproject.toml.
#
# A pull request brings its own: the table names no plugin, writes no file and raises no bound.

TABLE = "[tool.scenario]"
_HEADER = re.compile(rb"^\s*\[+\s*tool\s*\.\s*[\"']?scenario\b|^\s*\[\s*tool\s*\]", re.MULTILINE)
#: options that a project may fix, by their long names; each lowers what it is worth, or bounds it
CONFIGURABLE = frozenset(
    {
        "backend",
        "confirm",
        "durations",
        "exitfirst",
        "isolate",
        "jobs",
        "quiet",
        "strict",
        "tag",
        "timeout",
        "torch",
        "verbose",
    }
)


def read_configuration(command: click.Command, start: Path) -> dict[str, Any]:
    """Return what the nearest pyproject.toml fixes for a command, by parameter; often nothing.

    Raises UsageError, with the file, where the table says what it must not, or no TOML is there.

    A stranger's pull request brings its own pyproject.toml: so the table may lower a bound and
    never raise it, and names no plugin and no file to write.
    """
    path = project_root(start / "pyproject.toml") / "pyproject.toml"
    if not path.is_file():
        return {}
    try:
        text = read_file(path)
    except ScenarioError as error:
        raise click.UsageError(error.problems[0].sentence) from None
    if _HEADER.search(text) is None:
        return {}
    import tomllib

    try:
        table = tomllib.loads(text.decode()).get("tool", {}).get("scenario", {})
    except (ValueError, RecursionError, AttributeError) as error:
        message = f"{path} cannot be read: {error}"
        raise click.UsageError(message) from None
    found: dict[str, Any] = {}
    by_name = _map_long_names(command)
    for name, value in table.items() if isinstance(table, dict) else ():
        if name == "paths":
            found["paths"] = _read_paths(path, value)
            continue
        _require_configurable(path, name, value)
        param = by_name.get(name)
        if param is not None:
            _require_fitting(path, name, value, param)
            found[str(param.name)] = value
    return found


def _require_fitting(path: Path, name: str, value: object, param: click.Option) -> None:
    """Refuse a value that the option would not take, by its key. Raises UsageError.

    click converts defaults later, and would then name the option and not the file that fixed it.
    """
    where = f"{path}, {TABLE}: `{name}`"
    if param.is_flag and not isinstance(value, bool):
        message = f"{where} is true or false, not {short(repr(value))}"
        raise click.UsageError(message)
    if not param.is_flag and isinstance(value, bool):
        message = f"{where} cannot be {str(value).lower()}"
        raise click.UsageError(message)
    if isinstance(value, float) and not isfinite(value):
        message = f"{where} cannot be {value}"
        raise click.UsageError(message)
    if name == "jobs" and value != "auto" and not (isinstance(value, int) and value > 0):
        message = f"{where} is a whole number from 1 up, or `auto`, not {short(repr(value))}"
        raise click.UsageError(message)
    for each in value if isinstance(value, list) and param.multiple else [value]:
        try:
            param.type.convert(each, param, None)
        except click.BadParameter as error:
            message = f"{where}: {error.message}"
            raise click.UsageError(message) from None


def _map_long_names(command: click.Command) -> dict[str, click.Option]:
    return {
        each.removeprefix("--"): param
        for param in command.params
        if isinstance(param, click.Option)
        for each in param.opts
        if each.startswith("--")
    }


def _require_configurable(path: Path, name: str, value: object) -> None:
    """Refuse what no project fixes. Raises UsageError."""
    bounds = {flag.removeprefix("--"): name for name, flag in limits.FLAGS.items()}
    where = f"{path}, {TABLE}: "
    if name in bounds:
        most = getattr(limits.DEFAULT, bounds[name])
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            message = f"`{name}` is a whole number from 1 to {most}: a project only lowers a bound"
            raise click.UsageError(where + message)
        return
    if name not in CONFIGURABLE:
        known = ["paths", *sorted(CONFIGURABLE), *bounds]
        close = nearest(name, known)
        hint = f"; did you mean `{close}`?" if close else f"; a project fixes {', '.join(known)}"
        message = f"`{short(name)}` is not for a project to fix{hint}"
        raise click.UsageError(where + message)


def _read_paths(path: Path, value: object) -> list[str]:
    """Return paths as the command line would name them. Raises UsageError."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        message = f"{path}, {TABLE}: `paths` is a list of files and folders"
        raise click.UsageError(message)
    for name in names:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            message = f"{path}, {TABLE}: {short(name)!r} leads out of the project"
            raise click.UsageError(message)
    return [os.path.relpath(path.parent / name) for name in names]


# -------------------------------------------------------------------------------------------------
# The options for which part runs, in which order, how often, and what is remembered.

_SHARD = re.compile(r"(\d+)/(\d+)")
_SEEDS = 1 << 31


def add_options(command: CommandF, *options: Callable[[CommandF], CommandF]) -> CommandF:
    """Add options to a command, whose help shows them in the reverse of this order."""
    for add in options:
        command = add(command)
    return command


def add_repeat_options(command: Any) -> Any:
    """Add what runs a case several times."""
    return option(
        HOW,
        "--repeat",
        type=click.IntRange(min=1),
        default=1,
        metavar="N",
        help="Run each case N times; one whose verdict changes is FLAKY and does not pass.",
    )(command)


def add_order_options(command: Any) -> Any:
    """Add what takes a part, and shuffles."""
    return add_options(
        command,
        option(
            WHICH,
            "--shuffle",
            "seed",
            callback=_seed,
            metavar="SEED",
            help="Run in another order, which the seed alone decides; `random` takes a new seed "
            "and prints it.",
        ),
        option(
            WHICH,
            "--shard",
            callback=_shard,
            metavar="K/N",
            help="Only part K of N, as 2/5; `scenario merge` joins the results of all.",
        ),
    )


def add_memory_options(command: Any) -> Any:
    """Add what depends on earlier runs."""
    return add_options(
        command,
        option(
            WHICH,
            "--no-cache",
            is_flag=True,
            help="Neither read nor write what is remembered of earlier runs and checks, in "
            ".scenario/ in the project.",
        ),
        option(
            WHICH,
            "--failed-first",
            "--ff",
            is_flag=True,
            help="What did not pass the last time comes first.",
        ),
        option(
            WHICH,
            "--last-failed",
            "--lf",
            is_flag=True,
            help="Only what did not pass the last time; all, where everything did.",
        ),
    )


def _seed(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return a seed.

    A number, or a new one for `random`, which is printed so that a run can be repeated.
    """
    if value is None:
        return None
    if value == "random":
        return int.from_bytes(os.urandom(4)) % _SEEDS
    try:
        return int(value)
    except ValueError:
        message = f"{value!r} is neither a number nor `random`"
        raise click.BadParameter(message, ctx=ctx, param=param) from None


def _shard(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Return the two numbers of `--shard 2/5`. Raises BadParameter."""
    if value is None:
        return None
    found = _SHARD.fullmatch(value)
    if found is not None:
        number, of = map(int, found.groups())
        if 1 <= number <= of:
            return number, of
    message = f"{value!r} is not K/N with K from 1 to N, as in --shard 2/5"
    raise click.BadParameter(message, ctx=ctx, param=param)


# -------------------------------------------------------------------------------------------------
# The bounds on scenarios, and what they are executed on, as options of every command with them.

CommandF = TypeVar("CommandF", bound="Callable[..., Any]")


def _expand_limits(args: list[str]) -> list[str]:
    """Return arguments with `--max-ranks=9` for `--limit ranks=9`. Raises UsageError.

    >>> _expand_limits(["--limit", "ranks=9", "ring.yaml"])
    ['--max-ranks=9', 'ring.yaml']
    """
    found: list[str] = []
    rest = iter(args)
    for each in rest:
        if each == "--":
            return [*found, each, *rest]
        if each == "--limit":
            found.append(_bound(next(rest, "")))
        elif each.startswith("--limit="):
            found.append(_bound(each.removeprefix("--limit=")))
        else:
            found.append(each)
    return found


def _bound(text: str) -> str:
    name, _, number = text.partition("=")
    flag = f"--max-{name.replace('_', '-').removeprefix('max-')}"
    if not number or flag not in limits.FLAGS.values():
        known = [each.removeprefix("--max-") for each in limits.FLAGS.values()]
        close = nearest(name, known)
        hint = f"did you mean {close}=N?" if close else "`scenario explain limits` lists them"
        message = f"--limit {short(clean(text))!r} is not NAME=N with the name of a limit; {hint}"
        raise click.UsageError(message)
    return f"{flag}={number}"


def add_limit_options(command: CommandF) -> CommandF:
    """Add the options that bound what a file may ask for."""
    for name, counts in reversed(limits.COUNTS.items()):
        command = option(
            BOUNDS,
            limits.FLAGS[name],
            type=click.IntRange(min=1),
            default=getattr(limits.DEFAULT, name),
            show_default=True,
            metavar="N",
            hidden=True,
            help=f"{counts[:1].upper()}{counts[1:]}.",
        )(command)
    command = option(
        BOUNDS,
        "--limit",
        multiple=True,
        expose_value=False,
        metavar="NAME=N",
        help="Raise or lower a limit, as --limit ranks=128; `scenario explain limits` lists them. "
        "Repeatable.",
    )(command)
    return option(
        WHICH,
        "--follow-links",
        is_flag=True,
        help="Read files that a link leads to outside of the project: for mounted configuration.",
    )(command)


def check_backend(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse a backend that neither torch has nor a module named with --plugin may register."""
    if value is None or (value == "auto" and param.default == "auto"):
        return value
    from torch_scenarios.execution.backends import unknown

    reason = unknown(value, ctx.params["plugins"])
    if reason is not None:
        raise click.BadParameter(reason, ctx=ctx, param=param)
    return value


def check_lacks(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuse a plugin whose `LACKS` names what is not a capability."""
    if value:
        from torch_scenarios.execution.lacks import read_lacks

        for module in value:
            if module.endswith(".py") and not Path(module).is_file():
                message = f"there is no file {module!r}"
                raise click.BadParameter(message, ctx=ctx, param=param)
            try:
                read_lacks(module)
            except ScenarioError as error:
                words = (f"{each.message}; {each.hint}" for each in error.problems)
                raise click.BadParameter("; ".join(words), ctx=ctx, param=param) from error
    return value


def add_execution_options(command: CommandF) -> CommandF:
    """Add the options that choose what scenarios are run on."""
    return add_options(
        command,
        option(HOW, "--isolate", is_flag=True, help="Give each scenario fresh processes."),
        option(
            HOW,
            "--plugin",
            "plugins",
            multiple=True,
            is_eager=True,  # what may register a backend is read before --backend
            callback=check_lacks,
            metavar="MODULE",
            help="Import this module (or file.py) in every worker first; it may register a "
            "backend. Repeatable.",
        ),
        option(
            HOW,
            "--backend",
            default="auto",
            show_default=True,
            callback=check_backend,
            metavar="NAME",
            help="gloo, nccl, one that a plugin registers, or auto: NCCL with a GPU for each rank.",
        ),
    )


#: options that choose how torch runs, by their parameters, with what they are by default
_OF_TORCH = {
    "backend": "auto",
    "plugins": (),
    "launcher": None,
    "netns": None,
    "nnodes": 1,
    "share_gpu": False,
    "timeout": None,
}


def settle_framework(options: dict[str, Any]) -> None:
    """Let a framework be its own backend; UsageError where an option is one of torch's."""
    framework = options["framework"]
    if framework == "torch":
        return
    for name, usual in _OF_TORCH.items():
        if options.get(name, usual) not in {usual, framework}:
            word = name.removesuffix("s").replace("_", "-")
            message = (
                f"--{word} is for runs on torch; it cannot be given with --framework {framework}"
            )
            raise click.UsageError(message, click.get_current_context())
    options["backend"] = framework


def add_framework_option(command: CommandF) -> CommandF:
    """Add what the calls of a program are made with."""
    return option(
        HOW,
        "--framework",
        type=click.Choice(["torch", "mpi", "jax"]),
        default="torch",
        show_default=True,
        help="torch.distributed, or without torch MPI (mpi4py) or JAX (on CPUs), for what both "
        "have a word for.",
    )(command)


# -------------------------------------------------------------------------------------------------
# What several commands have in common: paths, selection, parameters, bounds, reports.

INVALID_EXIT = 2
INCONCLUSIVE_EXIT = 3


_NAME = re.compile(r"[^\W\d]\w*")


def _pairs(ctx: click.Context, param: click.Parameter, values: Iterable[str]) -> dict[str, str]:
    """Split each `K=V`; the value is YAML text."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not _NAME.fullmatch(name.strip()):
            message = f"{value!r} is not NAME=VALUE, as in --set width=9"
            raise click.BadParameter(message, ctx=ctx, param=param)
        found[name.strip()] = text
    return found


def add_selection_options(command: CommandF) -> CommandF:
    """Add the paths and the options that select cases and bound them."""
    command = add_options(
        add_limit_options(command),
        option(
            WHICH,
            "--set",
            "sets",
            multiple=True,
            callback=_pairs,
            metavar="K=V",
            help="Replace a parameter or a matrix key; the value is YAML. Repeatable.",
        ),
        option(
            WHICH,
            "--tag",
            "tags",
            multiple=True,
            metavar="TAG",
            help="Only cases with this tag. Repeatable.",
        ),
        option(
            WHICH,
            "-k",
            "keyword",
            metavar="EXPR",
            help="Only cases whose path or name holds these words; `and`, `or`, `not` as in "
            "pytest.",
        ),
    )
    return click.argument(
        "paths", nargs=-1, type=click.Path(), callback=lambda _ctx, _param, value: value or (".",)
    )(command)


def add_strict_option(command: CommandF) -> CommandF:
    """Add the option that turns warnings into failures."""
    return option(HOW, "--strict", is_flag=True, help="Fail what has a warning.")(command)


def add_report_options(command: CommandF) -> CommandF:
    """Add the options that choose reports."""
    return add_reports_as(FORMATS)(command)


def add_reports_as(kinds: Sequence[Format]) -> Callable[[CommandF], CommandF]:
    """Return what adds the options of some kinds of reports."""

    def add_all(command: CommandF) -> CommandF:
        return add_options(
            command,
            option(
                REPORTS,
                "--github/--no-github",
                default=None,
                help="Annotate YAML lines in GitHub Actions and write the job's summary; by "
                "itself where GITHUB_ACTIONS=true.",
            ),
            *(
                option(
                    REPORTS,
                    kind.option,
                    kind.parameter,
                    type=click.Path(dir_okay=False, allow_dash=True),
                    metavar="FILE",
                    help=kind.help,
                )
                for kind in reversed(kinds)
            ),
            option(
                REPORTS,
                "--durations",
                type=click.IntRange(min=0),
                default=0,
                metavar="N",
                help="Show the N slowest cases.",
            ),
            option(
                REPORTS,
                "-v",
                "--verbose",
                is_flag=True,
                help="Show every case, with prediction, observation and explanation.",
            ),
            option(REPORTS, "-q", "--quiet", is_flag=True, help="Show the summary alone."),
        )

    return add_all


def limits_of(options: Mapping[str, Any]) -> Limits:
    """Return the bounds that a command's options state."""
    return Limits(**{name: options[name] for name in Limits.__struct_fields__})


def refuse_usage(words: str) -> NoReturn:
    """Say what is wrong with a command line, in one line, and leave."""
    raise click.UsageError(clean(words), click.get_current_context())


def is_record(target: str | None) -> bool:
    """Whether a path is the folder of a record."""
    return target is not None and any(Path(target).glob("rank-*.jsonl"))


def write_text(path: str, words: str) -> None:
    """Write a file, or to standard output where it is `-`; leave where it cannot be written."""
    if path == "-":
        click.echo(words, nl=False)
        return
    try:
        Path(path).write_text(words, encoding="utf-8")
    except OSError as error:
        refuse_usage(f"{path}: it cannot be written: {error.strerror or error}")


def refuse(error: ScenarioError) -> NoReturn:
    """Print what is wrong with the command line, and leave with exit code 2."""
    for problem in error.problems:
        click.echo(str(problem), err=True)
    sys.exit(INVALID_EXIT)
