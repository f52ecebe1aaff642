"""The operator: runs the workloads of ConsumerGroups. In this version on one machine only (`local`)."""
