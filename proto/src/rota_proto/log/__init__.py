"""Contracts of the log by version, the payload encoding of batches, and Kafka's partitioning by key."""
