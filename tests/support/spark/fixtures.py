"""Fixtures for tests against Spark."""
