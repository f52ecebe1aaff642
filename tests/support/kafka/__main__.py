"""Apache Kafka on this machine, in the foreground: `python -m tests.support.kafka up`."""

import argparse
from typing import get_args

from tests.support.kafka.brokers import running
from tests.support.kafka.security import SecurityName
from tests.support.processes import run_in_foreground


def main() -> None:
    """Start brokers and keep them until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.kafka", description=__doc__)
    up = parser.add_subparsers(required=True).add_parser("up", help="start brokers; Ctrl-C ends them")
    up.add_argument("--nodes", type=int, default=1, help="how many brokers (default 1)")
    up.add_argument("--security", choices=get_args(SecurityName), default="plaintext")
    arguments = parser.parse_args()
    run_in_foreground(
        running(arguments.nodes, security=arguments.security),
        lambda kafka: f"Kafka is ready: {kafka.bootstrap} ({kafka.security.describe()})",
    )


if __name__ == "__main__":
    main()
