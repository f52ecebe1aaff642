"""
What the sidecar asks of an engine, and the two that there are: Rota's coordinator and log, and Kafka's brokers.

`port` says what is asked; everything above it knows no engine.
"""
