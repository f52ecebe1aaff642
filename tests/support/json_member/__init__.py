"""A group member driven by JSON lines on stdin and stdout, which reads no records: a tool of tests."""
