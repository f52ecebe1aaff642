"""
The order of a decision that lets a group rebalance: which sidecars get it, and what their answers mean.

The shells of both backends send it. The member that leads the group joins again; any other member does nothing.
"""

from collections.abc import Mapping, Sequence

from rota_operator.autoscaling.decision import Decision
from rota_operator.autoscaling.measure import Reports
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Time within which a sidecar answers; the rebalance takes longer.
ANSWER_S = 5.0


def rebalance_receivers(reports: Reports) -> Sequence[str]:
    """Return the sidecars that get the order: those whose member leads the group, or all, if none says so."""
    return [name for name, each in sorted(reports.items()) if each.member.leads] or sorted(reports)


def rebalance_order(decision: Decision) -> pb.SidecarOrder:
    """Return the order, with a reason for the coordinator."""
    hot = ", ".join(decision.inputs.hot_partitions)
    reason = f"the autoscaler moves other partitions away from the owner of a hot one: {hot}"
    return pb.SidecarOrder(rebalance=pb.Rebalance(reason=reason))


def rebalance_problem(errors: Mapping[str, str]) -> str:
    """Return why the order was executed by no sidecar, of their answers by name; empty: it was, as far as it is known."""
    if not errors:
        return "no sidecar of the group reports"
    if "" in errors.values():
        return ""
    name, error = next(iter(errors.items()))
    others = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    return f"{name}{others}: {error}"
