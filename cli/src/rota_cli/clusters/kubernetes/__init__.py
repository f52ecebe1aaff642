"""The Kubernetes API server, as `kubectl rota` reads it: kubeconfig, requests, watches, and what a ConsumerGroup's status holds."""
