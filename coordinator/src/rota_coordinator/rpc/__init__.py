"""gRPC services: decode and validate requests, submit them through the access control, and send the responses."""
