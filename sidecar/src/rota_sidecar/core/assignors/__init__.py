"""
Assignors: pure functions from the subscriptions of a group's members to an assignment of partitions.

Called by the leader of a group. Custom assignors implement the protocol in `model`.
"""
