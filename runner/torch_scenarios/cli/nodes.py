"""What commands over several nodes have in common: where the nodes meet, and their token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from torch_scenarios.cli.options import HOW, add_options, option

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
