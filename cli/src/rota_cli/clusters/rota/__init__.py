"""The port on Rota's own servers: `rota.coordinator.v1` and the SDK."""
