"""
What there is to see of groups and workloads, as one value: who has what, how far behind it is, and what has happened.

A core: it hears what the coordinator says of groups and what sidecars report, and gives a `View` of any moment. What nobody
has said lately is unknown (None), and never zero. Shown by the local runner, as a page and in a terminal.
"""
