"""
Reads the state of groups from the engine that owns it: Rota's coordinator and log, or Kafka's brokers.

`watch` polls a group about once a second and publishes its description and offsets to the overview; `rota` and `kafka` are the
adapters. Every call has a deadline, and none blocks the event loop.
"""
