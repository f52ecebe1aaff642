"""Puts a cluster together for an address. Loaded late: with it come the clients of the servers."""

from rota_cli.clusters.clocks import clocks
from rota_cli.clusters.connection import Access
from rota_cli.clusters.port import Cluster


def open_cluster(access: Access) -> Cluster:
    """Records and groups, where each of them is."""
    if access.is_rota:
        from rota_cli.clusters.rota.groups import RotaGroups
        from rota_cli.clusters.rota.records import RotaRecords
        from rota_cli.clusters.rota.server import RotaServer

        server = RotaServer(access, access.servers, clocks())
        return Cluster(RotaRecords(access, server), RotaGroups(server))
    from rota_cli.clusters.kafka.brokers import Brokers
    from rota_cli.clusters.kafka.groups import KafkaGroups
    from rota_cli.clusters.kafka.records import KafkaRecords

    brokers = Brokers(access, clocks())
    if not access.coordinator:
        return Cluster(KafkaRecords(brokers), KafkaGroups(brokers))
    from rota_cli.clusters.rota.groups import RotaGroups
    from rota_cli.clusters.rota.server import RotaServer

    return Cluster(KafkaRecords(brokers), RotaGroups(RotaServer(access, access.coordinator, clocks())))
