"""
What there is to see of groups and workloads, as one value: who has what, how far behind it is, and what has happened.

A core: it merges the facts of a group's coordinator or broker with what sidecars report, and gives a `View` of any moment. What
has not been reported lately is unknown (None), and never zero. Shown by the local runner, as a page and in a terminal.
"""
