"""Commands of `kubectl rota`: each takes a namespace and the name of a ConsumerGroup, and asks the API server alone."""
