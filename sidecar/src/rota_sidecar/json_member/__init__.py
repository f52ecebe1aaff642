"""The member as JSON lines on stdin and stdout, without deliveries."""
