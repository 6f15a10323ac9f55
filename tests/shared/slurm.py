"""A real Slurm on the hosts of a test: one controller, and slurmd on each host.

    node0: munged, slurmctld, slurmd, srun, sbatch       node1: slurmd

Each keeps its files in the test's folder. slurmd starts a step's processes in its own namespaces.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from hosts import ON_EACH, address, until

if TYPE_CHECKING:
    from hosts import Hosts

TOOLS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=node0({first})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
MailProg=/bin/true
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Return why this machine has no Slurm to start; None where it has."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"{absent[0]} is not installed (Debian: slurm-wlm, munge)" if absent else None


class Slurm:
    """The daemons; a context manager that ends them."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._folder = hosts.folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **ON_EACH,
            "SLURM_CONF": str(self._folder / "slurm.conf"),
            # the `python` of a command is the one that runs this test
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }

    def __enter__(self) -> Self:
        """Start the daemons, and wait until both hosts are idle."""
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        folder, count = self._folder, len(self._hosts.names)
        nodes = "\n".join(
            f"NodeName=node{number} NodeAddr={address(number)} CPUs=4 State=UNKNOWN"
            for number in range(count)
        )
        text = CONFIGURATION.format(first=address(0), folder=folder, nodes=nodes)
        (folder / "slurm.conf").write_text(text, encoding="utf-8")
        # the plugin for version 2 wants a mounted hierarchy, which a container may lack
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="utf-8")
        for name in ("state", *(f"node{number}" for number in range(count))):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {
            "key-file": "munge.key",
            "socket": "munge.socket",
            "pid-file": "munged.pid",
            "log-file": "munged.log",
            "seed-file": "munge.seed",
        }
        named = [f"--{option}={folder / name}" for option, name in files.items()]
        self._daemon(0, "munged", "--foreground", "--force", *named)
        until((folder / "munge.socket").exists)
        self._daemon(0, "slurmctld", "-D")
        for number in range(count):
            self._daemon(number, "slurmd", "-D", "-N", f"node{number}")
        until(
            lambda: self.output("sinfo", "--noheader", "--format=%t %D").strip() == f"idle {count}"
        )

    def _daemon(self, number: int, *command: str) -> None:
        with (self._folder / f"{command[0]}-{number}.out").open("wb") as output:
            started = self._hosts.start(
                number, command, output=output, environment=self._environment
            )
        self._daemons.append(started)

    def __exit__(self, *_: object) -> None:
        """End the daemons."""
        for daemon in self._daemons:
            daemon.send_signal(signal.SIGKILL)
        for daemon in self._daemons:
            daemon.wait(timeout=30)

    def run(self, *command: str, within_s: float = 240.0) -> tuple[int, str]:
        """Run a command on the first host to its end; return its exit code and what it printed."""
        started = self._hosts.start(
            0,
            command,
            output=subprocess.PIPE,
            folder=self._folder,
            environment=self._environment,
        )
        assert started.stdout is not None
        output, _ = started.communicate(timeout=within_s)
        return started.returncode, output.decode()

    def output(self, *command: str) -> str:
        """Return what a command on the first host prints."""
        return self.run(*command)[1]
