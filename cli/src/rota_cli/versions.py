"""Which parts are installed here. Read by `rota version` and `rota doctor`."""

from importlib.metadata import PackageNotFoundError, version

PARTS = {
    "rota-proto": "the gRPC contracts",
    "rota-coordinator": "group coordinator and embedded topic log",
    "rota-sidecar": "the member beside each application pod",
    "rota": "the SDK",
    "rota-operator": "reconciles ConsumerGroup resources",
    "rota-spark": "Spark applications as members",
    "rota-cli": "this command",
}


def installed(name: str) -> str | None:
    """The version of a part in this environment."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
