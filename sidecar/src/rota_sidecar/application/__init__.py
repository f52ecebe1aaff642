"""The application beside the sidecar, as it is spoken to: over gRPC, or by HTTP requests to it."""
