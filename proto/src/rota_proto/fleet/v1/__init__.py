"""Generated code of rota.fleet.v1; the contract itself is in proto/rota/fleet/v1."""
