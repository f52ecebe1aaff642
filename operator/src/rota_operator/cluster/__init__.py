"""
Runs the operator in a Kubernetes cluster: `python -m rota_operator cluster`.

Watches of kopf (`handlers`) put the keys of ConsumerGroups into one queue (`queues`). A worker takes a key and reads the cluster
(`observe`), decides (`rota_operator.reconcile`), performs the actions (`perform`) through the API server (`api`), and hands the
outcome to the status writer (`status_writer`). `groups` watches each group at its engine meanwhile; what it sees goes into
status and metrics as well. `process` starts all of it, and stops it in order.
"""
