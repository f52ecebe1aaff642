"""
The values that the scenario implies, for each documented metric: queries that have an answer exactly if Prometheus has these values.

By the moment at which they hold; a phase of the scenario waits for its own.
"""

from collections.abc import Mapping, Sequence

from tests.monitoring.stage import GROUP, IDLE, NAME, NAMESPACE, NEVER_S, PARTITIONS, PODS

OF_GROUP = f'namespace="{NAMESPACE}",name="{NAME}"'
OF_IDLE = f'namespace="{NAMESPACE}",name="{IDLE}"'
OF_MEMBERS = f'group="{GROUP}"'
EACH = PARTITIONS // len(PODS)
# Of each partition.
OLD_RECORDS, STUCK_RECORDS, POISONED = 4, 2, 1
DONE = PARTITIONS * (OLD_RECORDS + STUCK_RECORDS)
THRESHOLD = "rota_group_alert_threshold_seconds"

# Two members, without records.
AT_REST = (
    f"count(rota_assigned_partitions{{{OF_MEMBERS}}} == {EACH}) == {len(PODS)}",
    f'sum(rota_member_state{{{OF_MEMBERS},state="Stable"}}) == {len(PODS)}',
    f"sum(rota_lag_records{{{OF_MEMBERS}}}) == 0",
    f'sum(rota_heartbeats_total{{{OF_MEMBERS},outcome="ok"}}) > 0',
    # The second one has joined: the first one has given up a half, which is assigned to the second one.
    f'sum(rota_rebalances_total{{{OF_MEMBERS},kind="assigned"}}) >= {len(PODS)}',
    f'sum(rota_rebalances_total{{{OF_MEMBERS},kind="joined"}}) >= {len(PODS)}',
    'rota_coordinator_groups{state="Stable"} == 1',
    f"rota_coordinator_members == {len(PODS)}",
    'sum(rota_coordinator_slots) > 0 and sum(rota_coordinator_slots{state="Ready"}) == sum(rota_coordinator_slots)',
    # Two sidecars and the operator.
    'rota_coordinator_connections{state="admitted"} >= 3',
    "rota_coordinator_connections_closed_total == 0",
    "rota_coordinator_loop_lag_seconds_count > 0",
    'sum(rota_coordinator_requests_total{api="JoinGroup",error="NONE"}) >= 2',
    'rota_coordinator_request_seconds_count{api="Heartbeat"} > 0',
    'rota_coordinator_rebalances_total{reason="member_joined"} >= 1',
    "rota_coordinator_rebalance_seconds_count >= 1",
    f'rota_group_info{{{OF_GROUP},group="{GROUP}",coordination="Rota"}} == 1',
    f'{THRESHOLD}{{{OF_GROUP},alert="RotaLagSecondsHigh"}} == 60',
    f'{THRESHOLD}{{{OF_GROUP},alert="RotaGroupStuck"}} == {NEVER_S}',
    f'rota_group_condition{{{OF_GROUP},type="Ready"}} == 1',
    f"rota_group_partitions{{{OF_GROUP}}} == {PARTITIONS}",
    f"rota_group_unowned_partitions{{{OF_GROUP}}} == 0",
    f"rota_group_lag_records{{{OF_GROUP}}} == 0",
    f"rota_group_lag_seconds{{{OF_GROUP}}} == 0",
    f'rota_group_replicas{{{OF_GROUP},kind="desired"}} == {len(PODS)}',
    f'rota_group_replicas{{{OF_GROUP},kind="actual"}} == {len(PODS)}',
    'rota_operator_reconciles_total{outcome="success"} > 0 and on () rota_operator_reconciles_total{outcome="error"} == 0',
    'rota_operator_reconcile_seconds_count == on () rota_operator_reconciles_total{outcome="success"}',
)
# Old records in the hands of applications that do not begin.
LAGGING = (
    f"count(rota_lag_records{{{OF_MEMBERS}}} == {OLD_RECORDS}) == {PARTITIONS}",
    f"count(rota_lag_seconds{{{OF_MEMBERS}}} > 7200 and rota_lag_seconds < 7300) == {PARTITIONS}",
    f"sum(rota_inflight_records{{{OF_MEMBERS}}}) == {PARTITIONS * OLD_RECORDS}",
    f"rota_group_lag_records{{{OF_GROUP}}} == {PARTITIONS * OLD_RECORDS}",
    f"rota_group_lag_seconds{{{OF_GROUP}}} > 7200",
    f'rota_group_condition{{{OF_GROUP},type="Lagging"}} == 1',
)
# Everything has been acknowledged and committed.
CONSUMED = (
    f'sum(rota_records_total{{{OF_MEMBERS},verdict="ack"}}) == {PARTITIONS * OLD_RECORDS}',
    f"sum(rota_processing_seconds_count{{{OF_MEMBERS}}}) >= {PARTITIONS}",
    f'sum(rota_commits_total{{{OF_MEMBERS},outcome="ok"}}) >= {len(PODS)}',
    'sum(rota_commits_total{outcome="ok"}) == sum(rota_coordinator_requests_total{api="CommitOffsets",error="NONE"})',
    f"count(time() - rota_last_progress_timestamp_seconds{{{OF_MEMBERS}}} < 60) == {PARTITIONS}",
    "rota_coordinator_append_seconds_count > 0",
    f"sum(rota_lag_records{{{OF_MEMBERS}}}) == 0",
)
# Applications that stand still.
STUCK = (
    f'{THRESHOLD}{{{OF_GROUP},alert="RotaGroupStuck"}} == 1',
    f"sum(rota_lag_records{{{OF_MEMBERS}}}) == {PARTITIONS * STUCK_RECORDS}",
    f'rota_group_condition{{{OF_GROUP},type="Stuck"}} == 1',
)
CONTINUED = (f'sum(rota_records_total{{{OF_MEMBERS},verdict="ack"}}) == {DONE}',)
POISON_REJECTED = (
    f'sum(rota_records_total{{{OF_MEMBERS},verdict="dead_letter"}}) == {PARTITIONS * POISONED}',
    f"sum(rota_lag_records{{{OF_MEMBERS}}}) == 0",
)
FENCED = (f'sum(rota_heartbeats_total{{{OF_MEMBERS},outcome="FENCED_INSTANCE_ID"}}) == 1',)
# The other process has left: the member has its instance again.
UNFENCED = (f"count(rota_assigned_partitions{{{OF_MEMBERS}}} == {EACH}) == {len(PODS)}",)
STORM = (f"rota_group_rebalances_total{{{OF_GROUP}}} > 10",)
AFTER_STORM = (
    f"sum(rota_revoke_seconds_count{{{OF_MEMBERS}}}) >= 1",
    f'sum(rota_rebalances_total{{{OF_MEMBERS},kind="revoked"}}) >= 1',
)
WITHOUT_PODS = (
    f"rota_group_unowned_partitions{{{OF_IDLE}}} == {PARTITIONS}",
    f'rota_group_condition{{{OF_IDLE},type="Ready"}} == 0',
    f'rota_scale_decisions_total{{{OF_IDLE},direction="none",reason="Rebalancing"}} == 1',
)
# Nothing is wrong any more.
RECOVERED = (
    f'count(rota_group_condition{{{OF_GROUP},type=~"Lagging|Stuck|Rebalancing"}} == 0) == 3',
    f'rota_group_condition{{{OF_GROUP},type="Ready"}} == 1',
)
COMMITS_REFUSED = (
    f'sum(rota_commits_total{{{OF_MEMBERS},outcome="OFFSET_METADATA_TOO_LARGE"}}) > 0',
    'sum(rota_coordinator_requests_total{api="CommitOffsets",error="OFFSET_METADATA_TOO_LARGE"}) > 0',
    f"sum(rota_lag_records{{{OF_MEMBERS}}}) > 0",
)
ALL: Sequence[str] = (
    *AT_REST, *LAGGING, *CONSUMED, *STUCK, *CONTINUED, *POISON_REJECTED, *FENCED, *UNFENCED, *STORM, *AFTER_STORM, *WITHOUT_PODS,
    *RECOVERED, *COMMITS_REFUSED,
)  # fmt: skip
# Alerts that the scenario does not make fire, and why.
NOT_YET: Mapping[str, str] = {
    "RotaScalingLimited": "a load that needs more replicas than there may be takes minutes to measure; its rule is tested with promtool",
}
