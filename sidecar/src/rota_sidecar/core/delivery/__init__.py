"""
The delivery core: which records an application gets, what is committed, what happens at a rebalance. Pure, without IO
or clocks.
"""
