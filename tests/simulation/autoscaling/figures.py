"""
Figures of real runs that the model uses, and assumptions, each with its source.

Both autoscalers scale the same group with the same figures, so that they differ by their decisions alone. Consumers under KEDA are usually
plain ones, whose partitions are without an owner for longer (1.4 s to 1.9 s in the same runs); the model does not count that against it.
"""

from typing import NamedTuple


class Range(NamedTuple):
    """Range of a figure in seconds, from which a seed draws uniformly."""

    low: float
    high: float


# Measured: `start to partitions, on Rota` in docs/measurements/bench-sidecar.md, 1.06 s at 8327be9, 0.38 s at d252bc0.
SIDECAR_START_S = Range(0.38, 1.06)
# Default of `spec.offsets.commit.intervalSeconds`, and of a plain consumer's auto.commit.interval.ms.
COMMIT_S = 5.0
# Assumed: from the change of the number to the start of the containers, images on the nodes.
POD_START_S = Range(3.0, 8.0)
# Assumed: a consumer finishes its records in flight, between one record and a few; then it leaves the group.
FINISH_S = Range(0.2, 2.0)
# Assumed: from the change of the number until a drained pod leaves the group.
TERMINATE_S = Range(0.5, 1.5)
# Published: 180 ms for each record, which a consumer writes to a database one after the other, hence 5.5/s for each consumer
# (https://noamtamir.github.io/cool-things/posts/how-to-deal-with-slow-consumers). Nodes differ by a tenth.
RECORDS_PER_S = 5.5
NODE_SPREAD = 0.1


class Setting(NamedTuple):
    """Figures of the place where the group runs."""

    # A partition that moves is without an owner. Joins and leaves while a rebalance lasts are part of it.
    pause_s: Range
    # The pods of one change start together, apart from this.
    pod_spread_s: Range
    # Age of the offsets that the operator reads from Rota's coordinator, and of the counters that sidecars report, at most: the intervals at
    # which it looks, and they report.
    offsets_s: float
    reports_s: float


# By the code: REPORT_S of `rota_sidecar.fleet.client`, counted from the start of the sidecar, as commits are.
REPORT_S = 1.0
# Pauses are measured: `kubectl delete pod, rota, dynamic` in docs/measurements/bench-pods.md at 447f15ad and 1aa648c2, 0.72 s and 0.59 s
# (medians), at most 1.11 s and 1.55 s. The spread is assumed. The interval is that of the code: POLL_INTERVAL_S of
# `rota_operator.cluster.groups`. Offsets of groups on Kafka are older: up to LOOK_S of the sidecars (5 s), and a report.
IN_CLUSTER = Setting(Range(0.59, 1.55), Range(0.0, 2.0), 2.0, REPORT_S)
# Pauses are measured: "moves to who joins" and SIGTERM in what tests/sidecar/membership and tests/sidecar/delivery/rounds print on Rota, 0.26 s to
# 0.30 s. Processes start at once. The interval is that of the code: POLL_INTERVAL_S of `rota_operator.engines.watch`, for `rota up`.
ON_LAPTOP = Setting(Range(0.26, 0.30), Range(0.0, 0.0), 1.0, REPORT_S)
# Assumed: duration of a look at the offsets of one group, which is no part of the interval, so that its times drift.
LOOK_TAKES_S = 0.02
