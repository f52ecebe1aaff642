"""
Runs manifests as processes on this machine, as Kubernetes runs them as pods.

`runner` starts a coordinator and all workloads; `processes` performs for one workload what `rota_operator.replicas` decides;
`commands` computes command lines; `supervisor` holds one process.
"""
