"""Addresses that runners reserve: those that start together do not choose the same."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from rota_operator.local.paths import CannotStart, free_address, local_paths


def test_runners_that_start_together_have_addresses_of_their_own(tmp_path: Path) -> None:
    # No server listens yet on what a runner has chosen.
    wanted, page = free_address(), free_address()
    with ExitStack() as stack:
        runs = [
            stack.enter_context(local_paths(tmp_path / name, wanted, page)) for name in ("first", "second")
        ]
        assert (runs[0].coordinator, runs[0].page) == (f"rota://{wanted}", page)
        assert len({address for run in runs for address in (run.coordinator, f"rota://{run.page}")}) == 4


def test_a_runner_that_has_ended_gives_its_addresses_back(tmp_path: Path) -> None:
    wanted, page = free_address(), free_address()
    for _ in range(2):
        with local_paths(tmp_path, wanted, page) as paths:
            assert (paths.coordinator, paths.page) == (f"rota://{wanted}", page)


def test_a_port_that_a_server_has_is_not_chosen(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        with local_paths(tmp_path, taken, taken) as paths:
            assert taken not in {paths.coordinator.removeprefix("rota://"), paths.page}


@pytest.mark.parametrize("address", ["0.0.0.0:7070", "127.0.0.1", "127.0.0.1:65536", "host:7070"])
def test_an_address_that_others_can_reach_is_refused(tmp_path: Path, address: str) -> None:
    with (
        pytest.raises(CannotStart, match="is not a loopback address"),
        local_paths(tmp_path, address, address),
    ):
        pass
