"""Printing of results: formats, tables, units."""
