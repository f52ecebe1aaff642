"""The `rota` command."""
