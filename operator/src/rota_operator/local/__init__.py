"""
Kubernetes, as far as ConsumerGroups need it, played with processes on one machine.

`leash` holds one process; `processes` performs for one workload what `rota_operator.replicas` decides; `commands` says what
the processes are; `runner` does all that for a folder of manifests.
"""
