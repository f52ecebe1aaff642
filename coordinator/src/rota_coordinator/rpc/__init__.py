"""gRPC services: requests from the wire to the access control, answers back."""
