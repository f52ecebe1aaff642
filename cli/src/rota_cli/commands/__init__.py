"""The commands of `rota`: arguments, requests and output. They use the port in `clusters`, never an engine's client."""
