"""The gRPC contracts, generated from proto/rota: the only thing that the parts share."""
