"""Each launcher says in variables of its own where a process is; what is missing is named."""

from __future__ import annotations

import socket

import pytest

from torch_scenarios.errors import LaunchError
from torch_scenarios.execution.nodes import first_host, placement

TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "host0",
    "MASTER_PORT": "29500",
}
SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_NODELIST": "n[08-09,11]",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "8",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
    "PMIX_NAMESPACE": "1234",
}
#: HYDI_CONTROL_FD is that of a socket, which is open here as well
MPICH = {
    "PMI_RANK": "3",
    "PMI_SIZE": "8",
    "MPI_LOCALRANKID": "1",
    "MPI_LOCALNRANKS": "8",
    "HYDI_CONTROL_FD": "0",
}


@pytest.mark.parametrize(
    ("environment", "address"),
    [(TORCHRUN, "host0"), (SLURM, "n08"), (OPEN_MPI, "127.0.0.1"), (MPICH, "127.0.0.1")],
    ids=["torchrun", "Slurm", "Open MPI", "MPICH"],
)
def test_each_launcher_says_the_same(environment: dict[str, str], address: str) -> None:
    variables = placement(environment).variables()
    assert variables["RANK"] == "3"
    assert variables["WORLD_SIZE"] == "8"
    assert variables["LOCAL_RANK"] == "1"
    assert variables["MASTER_ADDR"] == address
    assert 0 < int(variables["MASTER_PORT"]) < 1 << 16


def test_torchrun_in_a_job_counts_before_the_job() -> None:
    assert placement({**SLURM, **OPEN_MPI, **TORCHRUN, "RANK": "5"}).rank == 5
    assert placement({**SLURM, **OPEN_MPI, "OMPI_COMM_WORLD_RANK": "6"}).rank == 6


def test_a_stated_address_counts_before_the_first_host() -> None:
    place = placement({**SLURM, "MASTER_ADDR": "10.0.0.9", "MASTER_PORT": "4444"})
    assert (place.address, place.port) == ("10.0.0.9", 4444)


def test_a_step_on_some_nodes_of_a_job_has_its_store_on_its_own_first_node() -> None:
    assert placement({**SLURM, "SLURM_STEP_NODELIST": "n11"}).address == "n11"


def test_two_steps_of_a_job_and_two_jobs_use_different_ports() -> None:
    other_step, other_job = {**SLURM, "SLURM_STEP_ID": "1"}, {**SLURM, "SLURM_JOB_ID": "78"}
    assert len({placement(each).port for each in (SLURM, other_step, other_job)}) == 3
    assert placement({**SLURM, "SLURM_PROCID": "4"}).port == placement(SLURM).port


@pytest.mark.parametrize("name", ["WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "RANK"])
def test_a_missing_variable_is_named(name: str) -> None:
    environment = {key: value for key, value in TORCHRUN.items() if key != name}
    with pytest.raises(LaunchError) as raised:
        placement(environment)
    assert f"{name} is not" in str(raised.value)


def test_every_missing_variable_is_named() -> None:
    with pytest.raises(LaunchError, match=r"RANK is set, and WORLD_SIZE and MASTER_ADDR .*are not"):
        placement({"RANK": "0", "MASTER_PORT": "1"})


def test_open_mpi_on_several_hosts_needs_an_address() -> None:
    with pytest.raises(LaunchError, match="MASTER_ADDR is not"):
        placement({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "4"})


def test_a_step_of_slurm_by_the_protocol_of_mpich_is_one_of_slurm() -> None:
    place = placement({**SLURM, "PMI_RANK": "3", "PMI_SIZE": "8"})
    assert (place.address, place.local_rank) == ("n08", 1)


def test_two_launches_of_mpich_use_different_ports() -> None:
    with socket.socket() as one, socket.socket() as other:
        files = [str(each.fileno()) for each in (one, other)]
        ports = [placement({**MPICH, "HYDI_CONTROL_FD": each}).port for each in files]
    assert ports[0] != ports[1]
    with pytest.raises(LaunchError, match="MASTER_PORT is not"):
        placement({**MPICH, "HYDI_CONTROL_FD": files[0]})


def test_the_batch_script_of_a_job_is_no_rank() -> None:
    environment = {key: value for key, value in SLURM.items() if key != "SLURM_STEP_ID"}
    with pytest.raises(LaunchError, match=r"write `srun python -m torch_scenarios.worker"):
        placement(environment)


def test_no_launch_at_all_says_how_to_start_one() -> None:
    with pytest.raises(LaunchError, match=r"torchrun --nproc-per-node 4 -m torch_scenarios.worker"):
        placement({})


def test_a_rank_that_is_no_number_is_quoted() -> None:
    with pytest.raises(LaunchError, match="WORLD_SIZE is two"):
        placement({**TORCHRUN, "WORLD_SIZE": "two"})


@pytest.mark.parametrize(
    ("names", "first"),
    [
        ("n1", "n1"),
        ("n1,n2", "n1"),
        ("n[001-003,7],m2", "n001"),
        ("n[5,7-9]-ib", "n5-ib"),
        ("r[1-2]n[3-4]", "r1n3"),
        ("a-b.example,c", "a-b.example"),
        ("", ""),
    ],
)
def test_the_first_host_of_a_list(names: str, first: str) -> None:
    assert first_host(names) == first
