"""The secret of a launch over hosts: a token that its people hand on, never on a command line.

On one machine no token is needed: a fork or a unix socket hands the secret on. Between hosts
`SCENARIO_TOKEN` has it on every node, or `SCENARIO_TOKEN_FILE` names a file with it that is this
user's alone. Knows nothing of scenarios and nothing of torch.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution.letters import LONGEST_TOKEN, SHORTEST_TOKEN, Secret

#: the variables that have a token, or name a file with one
TOKEN, TOKEN_FILE = "SCENARIO_TOKEN", "SCENARIO_TOKEN_FILE"
#: what makes a token, in a shell
MAKES = f"export {TOKEN}=$(openssl rand -hex 32)"

#: the warning where a launch over hosts has no token
UNPROTECTED = (
    "this launch is over several hosts and has no token: a program that reaches the port of rank "
    "0's store ({address}:{port}) can read what the ranks say, answer in their place, and run code "
    f"as this user. On every node, before the launch: `{MAKES}`, with one value for all\n"
)

#: what a node says that needs the token of a run and has none
MISSING = (
    f"this node needs the token of the run: set {TOKEN} to what the first node prints, or "
    f"{TOKEN_FILE} to a file with it"
)


def fresh_token() -> str:
    """Return a token that was never used before."""
    return secrets.token_hex(32)


def token_of(environment: Mapping[str, str]) -> str | None:
    """Return the token that the environment has, or names a file with; None without one.

    Raises LaunchError where it cannot be used: too short, or a file that others may read.
    """
    token, path = environment.get(TOKEN, ""), environment.get(TOKEN_FILE, "")
    where = TOKEN
    if not token and path:
        token, where = _read_token(path), f"{TOKEN_FILE} ({path})"
    if not token:
        return None
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN:
        message = (
            f"{where} has a token of {len(token)} characters; it must have {SHORTEST_TOKEN} to "
            f"{LONGEST_TOKEN}: `{MAKES}`"
        )
        raise LaunchError(message)
    return token


def secret_of(environment: Mapping[str, str]) -> Secret | None:
    """Return the secret of :func:`token_of`; None without a token."""
    token = token_of(environment)
    return None if token is None else Secret(token.encode())


def _read_token(path: str) -> str:
    """Return the token in a file. Raises LaunchError where it is not a file of this user alone."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                message = f"{TOKEN_FILE} names {path}, which is not a regular file"
                raise LaunchError(message)
            if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                message = f"others may read the token in {path}: `chmod 600 {path}`"
                raise LaunchError(message)
            content = file.read(LONGEST_TOKEN + 2)
    except OSError as error:
        message = f"the token in {path} ({TOKEN_FILE}) cannot be read: {error.strerror or error}"
        raise LaunchError(message) from error
    return content.decode("utf-8", "replace").strip()
