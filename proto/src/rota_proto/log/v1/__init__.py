"""Generated code of rota.log.v1; the contract itself is in proto/rota/log/v1."""
