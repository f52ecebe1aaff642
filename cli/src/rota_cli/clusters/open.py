"""
Opens the cluster of an address with the adapters for its records and its groups. Imported late: it loads the servers'
clients.
"""

from rota_cli.clusters.clocks import system_clocks
from rota_cli.clusters.connection import Connection
from rota_cli.clusters.port import Cluster


def open_cluster(connection: Connection) -> Cluster:
    """Return the adapters for the records and the groups of this connection."""
    if connection.is_rota:
        from rota_cli.clusters.rota.groups import RotaGroups
        from rota_cli.clusters.rota.records import RotaRecords
        from rota_cli.clusters.rota.server import RotaServer

        server = RotaServer(connection, connection.servers, system_clocks())
        return Cluster(RotaRecords(connection, server), RotaGroups(server))
    from rota_cli.clusters.kafka.brokers import Brokers
    from rota_cli.clusters.kafka.groups import KafkaGroups
    from rota_cli.clusters.kafka.records import KafkaRecords

    brokers = Brokers(connection, system_clocks())
    if not connection.coordinator:
        return Cluster(KafkaRecords(brokers), KafkaGroups(brokers))
    from rota_cli.clusters.rota.groups import RotaGroups
    from rota_cli.clusters.rota.server import RotaServer

    return Cluster(
        KafkaRecords(brokers), RotaGroups(RotaServer(connection, connection.coordinator, system_clocks()))
    )
