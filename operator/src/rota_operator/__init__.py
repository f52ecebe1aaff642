"""Reconciles ConsumerGroup resources, scales consumers and resets offsets."""
