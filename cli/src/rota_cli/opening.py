"""Puts a cluster together for an address. Loaded late: with it come the clients of the servers."""

from rota_cli.access import Access
from rota_cli.clocks import clocks
from rota_cli.cluster import Cluster


def open_cluster(access: Access) -> Cluster:
    """Records and groups, where each of them is."""
    if access.is_rota:
        from rota_cli.on_rota.groups import RotaGroups
        from rota_cli.on_rota.records import RotaRecords
        from rota_cli.on_rota.server import RotaServer

        server = RotaServer(access, access.servers, clocks())
        return Cluster(RotaRecords(access, server), RotaGroups(server))
    from rota_cli.on_kafka.brokers import Brokers
    from rota_cli.on_kafka.groups import KafkaGroups
    from rota_cli.on_kafka.records import KafkaRecords

    brokers = Brokers(access, clocks())
    if not access.coordinator:
        return Cluster(KafkaRecords(brokers), KafkaGroups(brokers))
    from rota_cli.on_rota.groups import RotaGroups
    from rota_cli.on_rota.server import RotaServer

    return Cluster(KafkaRecords(brokers), RotaGroups(RotaServer(access, access.coordinator, clocks())))
