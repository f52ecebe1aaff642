"""How results are printed: formats, tables, units."""
