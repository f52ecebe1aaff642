"""Spark applications as members of a group: data source, driver helper, example pipelines."""
