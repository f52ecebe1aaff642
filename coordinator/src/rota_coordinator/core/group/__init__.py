"""
The group core: one group answers one request at a time with values, and performs nothing.

Called by the server, which owns sockets, clocks and the store, and by the simulation, which owns fakes of all
three. That is why nothing here may read a clock, draw a random number or touch IO: `make check` holds it.
"""
