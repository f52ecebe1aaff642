"""
The group core: decides one request of one group at a time, and returns responses and effects without performing them.

Called by the shell (`runtime.slot`), which owns sockets, clocks and the store, and by the simulation with fakes of all
three. The code reads no clock, draws no random number and performs no I/O; `make check` enforces it.
"""
