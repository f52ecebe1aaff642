"""The cluster that the tests of a run share."""
