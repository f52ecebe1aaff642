"""Fixtures for tests against Prometheus."""
