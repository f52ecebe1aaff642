"""
Kafka's consumer protocol: the bytes in which members tell their subscriptions, and leaders give assignments.

The same on both engines, so that Kafka's tools read our groups and other clients share them.
"""
