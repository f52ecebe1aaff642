"""`python -m rota_spark`: prints its version; applications import the package."""

import argparse
from importlib.metadata import version


def main() -> None:
    """Handle `--version`; fail with a message for everything else."""
    parser = argparse.ArgumentParser(
        prog="rota-spark", description="Spark applications as group members: import rota_spark."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-spark')}")
    parser.parse_args()
    parser.error(
        "there is nothing to start: submit an application that imports rota_spark, see docs/guide/spark.md"
    )


if __name__ == "__main__":
    main()
