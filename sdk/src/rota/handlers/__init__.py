"""A function for each record: the short way to consume. `rota.handler` and `rota.run` are the way in."""
