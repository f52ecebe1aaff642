"""Operator of ConsumerGroups: runs their workloads, in this version on one machine only (`local`)."""
