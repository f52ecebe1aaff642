"""What a sidecar reports to be wrong now: of itself, and of partitions, those with the same sentence together."""

from rota_operator.overview.reports import key_of
from rota_proto.fleet.v1 import fleet_pb2 as pb

# Partitions that a sentence names.
SHOWN_MAX = 20


def problems_of(report: pb.SidecarReport) -> tuple[str, ...]:
    """One sentence each."""
    named: dict[str, list[str]] = {}
    for each in report.partitions:
        if each.problem:
            named.setdefault(each.problem, []).append(key_of(each).text)
    return (*report.member.problems, *(f"{_shown(names)}: {says}" for says, names in named.items()))


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
