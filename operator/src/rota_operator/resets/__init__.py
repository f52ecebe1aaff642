"""
Offset resets that the members of a group execute themselves, each for the partitions that it owns.

A core: it decides which member sets which offsets. The shell that sends the orders is `rota_operator.local.offset_reset`.
"""
