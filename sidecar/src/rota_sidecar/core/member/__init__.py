"""
The member core: a stepped machine that turns events and the time into actions, and performs none.

Called by the sidecar's shell, which owns the connections and the clock, and by the simulation, which owns
fakes of both. `make check` holds that nothing here reads a clock, draws a random number or touches IO.
"""
