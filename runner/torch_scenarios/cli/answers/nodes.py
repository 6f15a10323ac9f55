"""The place of a command among several nodes: where they meet, and their token."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import click

from torch_scenarios.cli.options import INCONCLUSIVE_EXIT
from torch_scenarios.display import clean
from torch_scenarios.errors import LaunchError
from torch_scenarios.execution.letters import Secret
from torch_scenarios.execution.rendezvous import Endpoint
from torch_scenarios.execution.token import MISSING, TOKEN, TOKEN_FILE, fresh_token, token_of


def find_endpoint(options: Mapping[str, Any]) -> Endpoint:
    """Return where the nodes meet."""
    host, port = options["rdzv_endpoint"]
    return Endpoint(host=host, port=port)


def token_or_leave() -> str | None:
    """Return the token that the environment has; one that cannot be used ends with exit code 3."""
    try:
        return token_of(os.environ)
    except LaunchError as error:
        leave_unmet(error)


def secret_or_leave(token: str | None) -> Secret:
    """Return the secret of a node that is not the first; without a token it ends with code 3."""
    if token is None:
        click.echo(MISSING, err=True)
        sys.exit(INCONCLUSIVE_EXIT)
    return Secret(token.encode())


def secret_for_all(token: str | None, say: Callable[[str], None]) -> Secret:
    """Return the secret of the first node; without a token it makes one, and says it."""
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
