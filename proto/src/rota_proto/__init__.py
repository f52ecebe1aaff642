"""The gRPC contracts, generated from proto/rota, and the layouts of the bytes that they carry; all parts share them."""
