"""Handlers: a function called for each record. The public names are `rota.handler` and `rota.run`."""
