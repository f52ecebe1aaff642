"""Reads of ConsumerGroups, and of the ConfigMap and the Events that belong to one."""

from rota_cli.clusters.kubernetes.api import Api
from rota_cli.clusters.kubernetes.kinds import CONFIG_MAP, CONSUMER_GROUP, EVENT
from rota_cli.clusters.kubernetes.resource import ConsumerGroup, Event, parse_event, parse_group


def read_group(api: Api, namespace: str, name: str) -> ConsumerGroup:
    """Read a ConsumerGroup. Raises ObjectNotFound, NotServed or another Failure."""
    return parse_group(api.get(CONSUMER_GROUP, namespace, name))


def read_instances(api: Api, group: ConsumerGroup) -> dict[str, str]:
    """Return the instance that each pod holds; empty if the operator hands out none, as it does for Deployments with static members."""
    if not group.is_static:
        return {}
    found = api.find(CONFIG_MAP, group.namespace, f"rota-{group.name}-instances")
    data = {} if found is None else found.get("data") or {}
    # Each value begins with the name of the pod.
    return {str(holder).partition(" ")[0]: str(instance) for instance, holder in data.items()}


def read_events(api: Api, group: ConsumerGroup) -> list[Event]:
    """Return the Events about a ConsumerGroup that the API server still has, oldest first."""
    fields = f"involvedObject.kind=ConsumerGroup,involvedObject.name={group.name}"
    page = api.list(EVENT, group.namespace, fields=fields)
    # Those of a former ConsumerGroup of the name are about another group.
    own = [each for each in page.items if (each.get("involvedObject") or {}).get("uid") in (None, group.uid)]
    return sorted(map(parse_event, own), key=lambda event: event.at)
