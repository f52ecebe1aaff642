"""
Resets of a group's offsets that its members carry out themselves, each for the partitions that it has.

A core: it decides whom to order what. The shell that orders it is `rota_operator.local.offset_reset`.
"""
