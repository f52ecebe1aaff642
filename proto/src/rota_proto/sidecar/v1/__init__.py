"""Generated code of rota.sidecar.v1; the contract itself is in proto/rota/sidecar/v1."""
