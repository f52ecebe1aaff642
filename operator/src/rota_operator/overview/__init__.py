"""
State of groups and workloads as one value: owners, lag and events of each group.

A core: it merges the engines' descriptions and offsets with the reports of sidecars and returns a `View` for any time. A
value that was not reported lately is unknown (None), never zero. Shown by the local runner, as a page and in a terminal.
"""
