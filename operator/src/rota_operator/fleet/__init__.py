"""
Fleet: the gRPC service that sidecars report to and take orders from, shared by the cluster operator and the local runner.

A shell: `server` authenticates each stream through the port in `authentication`, hands reports to its owner and sends orders.
What reports and orders mean is decided in the cores.
"""
