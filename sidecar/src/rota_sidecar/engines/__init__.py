"""
The sidecar's backends, `rota` (coordinator and embedded log) and `kafka` (brokers), behind the interfaces of `port` and
`records`. Everything above the interfaces is independent of the backend.
"""
