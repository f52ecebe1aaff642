"""
Kafka's consumer protocol: the encoding of members' subscriptions and of leaders' assignments.

Equal on both backends, so that Kafka's tools show Rota's groups and other clients can join them.
"""
