"""Kerberos on the command line with confluent-kafka's wheels, which are built without it: refused with the remedy."""

import pytest

from rota_cli.clusters.clocks import system_clocks
from rota_cli.clusters.connection import Connection, SaslLogin
from rota_cli.clusters.kafka.brokers import Brokers
from rota_cli.clusters.kafka.offset_deletion import delete_offsets
from rota_cli.errors import Failure

CONNECTION = Connection("127.0.0.1:1", "the test", login=SaslLogin("GSSAPI"))


def test_a_login_names_the_build_that_it_needs() -> None:
    with pytest.raises(Failure, match="built without Kerberos, as its wheels are: build it from source"):
        Brokers(CONNECTION, system_clocks()).config()


def test_offsets_are_deleted_by_another_tool() -> None:
    with pytest.raises(
        Failure, match="delete them with kafka-consumer-groups --delete-offsets, or use SCRAM"
    ):
        delete_offsets(CONNECTION, "shop", [])
