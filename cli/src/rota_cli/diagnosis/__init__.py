"""What is wrong with a group, and why: decided from values, without IO."""
