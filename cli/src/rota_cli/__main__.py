"""`rota`, also found by kubectl as `kubectl rota`: the command line. Its first user is `make demo`."""

import argparse
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


def describe_parts() -> str:
    """One line for each part: its version here, and what it is for."""
    return "\n".join(f"{name:<18}{installed(name):<15}{purpose}" for name, purpose in PARTS.items())


def installed(name: str) -> str:
    """The version of a part in this environment."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(
        prog="rota", description="Consumer groups for Kubernetes and for one machine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version", help="the parts that are installed here, and their versions")
    parser.parse_args()
    print(describe_parts())


if __name__ == "__main__":
    main()
