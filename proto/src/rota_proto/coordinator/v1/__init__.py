"""Generated code of rota.coordinator.v1; the contract itself is in proto/rota/coordinator/v1."""
