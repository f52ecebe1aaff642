"""Diagnosis of groups: lag, stalled partitions, changes and explanations, computed without IO."""
