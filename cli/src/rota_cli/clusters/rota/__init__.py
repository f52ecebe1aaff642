"""Adapter of the port to Rota's own servers, through `rota.coordinator.v1` and the SDK."""
