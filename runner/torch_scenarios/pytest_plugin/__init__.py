"""The pytest plugin: scenarios as items of a pytest session that asks for them.

A session asks with `--scenarios` on its command line, or with `scenario_paths = ["scenarios"]` in
its configuration. pytest imports this module at every start, in every project: therefore
nothing is imported here, and nothing is collected, until a session asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch_scenarios.pytest_plugin.items import RunScenario
    from torch_scenarios.record.function import ProgramRecorder


BACKEND = "gloo, nccl, one that a plugin registers, or auto: NCCL with a GPU for each rank"
PLUGIN = "import this module in every worker first; it may register a backend"
TIMEOUT = "the process-group timeout in seconds, in place of each scenario's own"
STRICT = "fail a scenario that has a warning"
BOUND = "a limit of the command line: ranks=128, work=3000000000"
LINKS = "read files that a link leads to outside of the project: for mounted configuration"
ISOLATE = "give each scenario fresh processes"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line, and what the configuration may state instead."""
    group = parser.getgroup("scenarios", "scenarios of torch.distributed")
    group.addoption(
        "--scenarios", action="store_true", help="collect the scenarios (YAML) below the paths"
    )
    group.addoption("--scenario-backend", metavar="NAME", help=f"{BACKEND} (default: auto)")
    group.addoption(
        "--scenario-plugin", metavar="MODULE", action="append", help=f"{PLUGIN}; repeatable"
    )
    group.addoption("--scenario-timeout", metavar="SECONDS", help=TIMEOUT)
    group.addoption("--scenario-isolate", action="store_true", help=ISOLATE)
    group.addoption("--scenario-strict", action="store_true", help=STRICT)
    group.addoption(
        "--scenario-limit",
        "--scenario-bound",
        dest="scenario_bound",
        metavar="NAME=N",
        action="append",
        help=f"{BOUND}; repeatable",
    )
    group.addoption("--scenario-follow-links", action="store_true", help=LINKS)
    parser.addini(
        "scenario_paths", "scenarios, and folders in which every YAML file is one", "paths", []
    )
    parser.addini("scenario_backend", BACKEND, default="auto")
    parser.addini("scenario_plugins", PLUGIN, "args", [])
    parser.addini("scenario_timeout", TIMEOUT, default="")
    parser.addini("scenario_isolate", ISOLATE, "bool", default=False)
    parser.addini("scenario_strict", STRICT, "bool", default=False)
    parser.addini("scenario_bounds", f"each {BOUND}", "args", [])
    parser.addini("scenario_follow_links", LINKS, "bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Collect scenarios, if the session asks for them."""
    config.addinivalue_line("markers", "scenario: a scenario of torch.distributed, from YAML")
    if config.getoption("scenarios") or config.getini("scenario_paths"):
        from torch_scenarios.pytest_plugin.items import CollectionHooks

        config.pluginmanager.register(CollectionHooks(config), "scenarios-collecting")


@pytest.fixture
def run_scenario(request: pytest.FixtureRequest) -> RunScenario:
    """Run one scenario (a path, YAML text or a dict) in the session's warm workers."""
    from torch_scenarios.pytest_plugin.items import RunScenario

    return RunScenario(request)


@pytest.fixture(scope="session")
def record_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProgramRecorder]:
    """Record a function on ranks, and return the verdict and the scenario that does the same.

    `verdict, scenario = record_program(train_step, world_size=4)`. With `fake=True`, the default,
    nothing is communicated and nothing can hang.
    """
    from torch_scenarios.record.function import ProgramRecorder

    recorder = ProgramRecorder(lambda: tmp_path_factory.mktemp("recorded"))
    yield recorder
    recorder.close()


@pytest.fixture
def assert_parity(record_program: ProgramRecorder) -> Callable[..., None]:
    """Hold n ranks to what one process computes: `assert_parity(step, world_size=4)`."""
    return record_program.assert_parity
