"""
The core of the embedded log: topics, what their partitions hold, producers and transactions.

Called by the server, which owns the file, the clock and the waiting, and by the tests, which own lists instead. As the
group's core it decides and performs nothing; it knows records by the headers of their batches alone.
"""
