"""What commands over several nodes have in common: where the nodes meet, and their token."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import click

from torch_scenarios.cli.options import HOW, INCONCLUSIVE_EXIT, add_options, option
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError

if TYPE_CHECKING:
    from torch_scenarios.execution.letters import Secret
    from torch_scenarios.execution.rendezvous import Endpoint

#: the largest number of a port
LAST_PORT = 65535


def split_endpoint(ctx: click.Context, param: click.Parameter, value: str | None) -> Any:
    """Split host:port; an address of IPv6 is in brackets."""
    if value is None:
        return None
    host, _, port = value.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        message = f"{value!r}: write an address of IPv6 in brackets, as in [fd79::10]:29400"
        raise click.BadParameter(message, ctx=ctx, param=param)
    if host and port.isdecimal() and 0 < int(port) <= LAST_PORT:
        return host, int(port)
    message = f"{value!r} is not HOST:PORT, as in host0:29400 or [fd79::10]:29400"
    raise click.BadParameter(message, ctx=ctx, param=param)


def add_node_options(command: Any) -> Any:
    """Add the options that say how many nodes and ranks there are, and where the nodes meet."""
    return add_options(
        command,
        option(
            HOW,
            "--nproc-per-node",
            type=click.IntRange(1),
            default=4,
            show_default=True,
            metavar="N",
            help="Ranks of each node.",
        ),
        option(
            HOW,
            "--rdzv-endpoint",
            callback=split_endpoint,
            metavar="HOST:PORT",
            help="Where the nodes meet: an address of the first node, which judges and reports.",
        ),
        option(
            HOW,
            "--nnodes",
            type=click.IntRange(1),
            default=1,
            metavar="N",
            help="Use N nodes: start the same command on each of them.",
        ),
    )


def require_endpoint(options: Mapping[str, Any]) -> None:
    """Raise UsageError where several nodes have no place to meet."""
    if options["rdzv_endpoint"] is None:
        message = "--nnodes needs --rdzv-endpoint HOST:PORT, the same on every node"
        raise click.UsageError(message)


def find_endpoint(options: Mapping[str, Any]) -> Endpoint:
    """Return where the nodes meet."""
    from torch_scenarios.execution.rendezvous import Endpoint

    host, port = options["rdzv_endpoint"]
    return Endpoint(host=host, port=port)


def token_or_leave() -> str | None:
    """Return the token that the environment has; one that cannot be used ends with exit code 3."""
    from torch_scenarios.execution.token import token_of

    try:
        return token_of(os.environ)
    except LaunchError as error:
        leave_unmet(error)


def secret_or_leave(token: str | None) -> Secret:
    """Return the secret of a node that is not the first; without a token it ends with code 3."""
    from torch_scenarios.execution.letters import Secret
    from torch_scenarios.execution.token import MISSING

    if token is None:
        click.echo(MISSING, err=True)
        sys.exit(INCONCLUSIVE_EXIT)
    return Secret(token.encode())


def secret_for_all(token: str | None, say: Callable[[str], None]) -> Secret:
    """Return the secret of the first node; without a token it makes one, and says it."""
    from torch_scenarios.execution.letters import Secret
    from torch_scenarios.execution.token import TOKEN, TOKEN_FILE, fresh_token

    if token is None:
        token = fresh_token()
        say(
            f"the other nodes need this token, in their environment or in a file that {TOKEN_FILE} "
            f"names:\n  export {TOKEN}={token}"
        )
    return Secret(token.encode())


def leave_unmet(error: Exception) -> NoReturn:
    """Say why this node cannot take part, and end with exit code 3."""
    click.echo(clean(str(error)), err=True)
    sys.exit(INCONCLUSIVE_EXIT)
