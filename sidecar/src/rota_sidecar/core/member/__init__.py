"""
The member core: a state machine that takes an event and the time and returns actions, without performing any.

Called by `membership.driver`, which owns the connections and the clock, and by the simulation, which owns fakes of
both. `make check` enforces that no module here reads a clock, draws a random number or does IO.
"""
