"""
Offset resets as reviewed plans: what a target means for each partition, the plan and its ConfigMaps, and the steps of an execution.

A core. `targets` resolves a target into a `plan`, `documents` writes and reads the plan's ConfigMaps, `machine` decides what comes
next, `orders` distributes offsets over the owners of their partitions. The shells are `rota_operator.cluster.offset_resets` and
`rota_operator.local.offset_resets`.
"""
