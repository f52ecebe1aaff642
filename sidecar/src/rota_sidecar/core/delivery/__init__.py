"""
The delivery core: dispatch of records, commits, and revocations, as a state machine without IO or clocks.

Called by `delivery.driver`, which performs the actions, and by the simulation.
"""
