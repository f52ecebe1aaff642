"""Interfaces to the application beside the sidecar: a gRPC service that it calls, or HTTP requests to it."""
