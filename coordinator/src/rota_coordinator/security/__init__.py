"""Authentication, authorization, limits and TLS of the coordinator's gRPC port. Only shells import it."""
