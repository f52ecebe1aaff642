"""The operator's flags and variables: parsed once, what cannot work is refused before anything starts."""

import argparse
import re
from collections.abc import Sequence

import pytest

from rota_operator.cluster.config import ClusterConfig, add_flags, config_of, error_in
from tests.support.tree import REPO

VALID = ("--sidecar-image=rota-sidecar:1", "--lease-namespace=rota")


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    add_flags(made)
    return made


def config(*flags: str, own_namespace: str = "") -> ClusterConfig:
    return config_of(parser().parse_args(flags), own_namespace, "host-1")


def test_by_default_only_this_machine_reaches_the_operator_and_it_elects_a_leader() -> None:
    found = config("--sidecar-image=rota-sidecar:1", own_namespace="rota")
    assert error_in(found) == ""
    assert (found.http_address, found.fleet_bind_address) == ("127.0.0.1:7082", "127.0.0.1:7083")
    assert (found.lease_namespace, found.lease_name, found.identity) == ("rota", "rota-operator", "host-1")
    assert (found.namespaces, found.kubeconfig, found.insecure) == ((), None, False)
    assert found.fleet_address == found.fleet_bind_address


def test_variables_are_the_defaults_of_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("NAMESPACE", "one,two"), ("INSECURE", "true"), ("RESYNC_SECONDS", "7"), ("SIDECAR_IMAGE", "a:1"),
    ):  # fmt: skip
        monkeypatch.setenv(f"ROTA_{name}", value)
    found = config("--sidecar-image=b:1")
    assert (found.namespaces, found.insecure, found.resync_seconds) == (("one", "two"), True, 7)
    assert found.sidecar_image == "b:1"


def test_a_switch_that_is_neither_on_nor_off_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROTA_INSECURE", "perhaps")
    with pytest.raises(SystemExit):
        parser()
    assert "ROTA_INSECURE must be true or false" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--lease-namespace=rota",), "--sidecar-image is required"),
        (("--sidecar-image=a:1",), "--lease-namespace is required"),
        ((*VALID, "--namespace=Shop"), "--namespace must be"),
        ((*VALID, "--http-listen=7082"), "--http-listen must be HOST:PORT"),
        ((*VALID, "--fleet-address=a:99999"), "--fleet-address must be HOST:PORT"),
        ((*VALID, "--resync-seconds=0"), "--resync-seconds must be"),
        ((*VALID, "--fleet-listen=0.0.0.0:7083"), "is not loopback"),
        ((*VALID, "--page-listen=0.0.0.0:7084"), "--page-listen 0.0.0.0:7084 must be a loopback address"),
        ((*VALID, "--page-listen=7084"), "--page-listen must be HOST:PORT"),
        ((*VALID, "--tls-cert=a.pem"), "--tls-key is missing"),
        ((*VALID, "--tls-cert=a", "--tls-key=b", "--insecure"), "exclude each other"),
    ],
)
def test_what_cannot_work_is_refused_with_the_name_of_the_flag(flags: Sequence[str], message: str) -> None:
    assert message in error_in(config(*flags))


@pytest.mark.parametrize(
    "flags",
    [
        ("--lease-name=",),
        ("--fleet-listen=0.0.0.0:7083", "--insecure"),
        ("--fleet-listen=0.0.0.0:7083", "--tls-cert=a", "--tls-key=b"),
        ("--http-listen=[::1]:0",),
        ("--page-listen=",),
        ("--page-listen=[::1]:0",),
    ],
)
def test_what_works_is_accepted(flags: Sequence[str]) -> None:
    assert error_in(config(*VALID, *flags)) == ""


def test_the_guide_lists_every_flag() -> None:
    guide = (REPO / "docs" / "guide" / "operator.md").read_text()
    listed = set(re.findall(r"`(--[a-z-]+)`", guide[guide.index("## Flags") : guide.index("## Replicas")]))
    flags = {each for action in parser()._actions for each in action.option_strings} - {"-h", "--help"}
    assert listed == flags
