"""
Decisions of the data source and the driver helper, as values.

The source asks the sidecar for positions and end offsets, `plan` makes the batch of them, `limit` says how large it may be; the
driver asks `plan` which of its ranges still count when the batch begins.
"""
