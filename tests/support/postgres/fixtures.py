"""Fixtures for tests against PostgreSQL."""
