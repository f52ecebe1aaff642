"""
The core of the embedded log: topics, the offsets of their partitions, producers and transactions.

Called by the shell (`runtime.topic_log`), which owns the store, the clock and the waiting calls, and by tests with
in-memory lists. Like the group core, it returns effects and performs none; it sees batch headers, never records.
"""
