"""`python -m rota_spark`: prints its version. Nothing else is implemented yet."""

import argparse
from importlib.metadata import version


def main() -> None:
    """Handle `--version`; fail with a message for everything else."""
    parser = argparse.ArgumentParser(
        prog="rota-spark", description="Spark applications as group members. Not implemented yet."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-spark')}")
    parser.parse_args()
    parser.error("this version has nothing to start yet; see CHANGELOG.md for what each part can do")


if __name__ == "__main__":
    main()
