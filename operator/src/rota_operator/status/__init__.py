"""
Says in the status of a ConsumerGroup what is known about it.

A core, called by the shell in `cluster` after each reconcile and with each change of the group's view: it combines the plan's
decision, the group's view (`rota_operator.overview`), the progress that sidecars report, and the workload's pods into a
`ConsumerGroupStatus`, and decides when it is written. A value that is not known is absent, and a condition that depends on it
is Unknown: never zero, never True.
"""
