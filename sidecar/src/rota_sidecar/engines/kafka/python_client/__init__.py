"""A Kafka client for records over the sidecar's own connections, for logins that librdkafka does not have."""
