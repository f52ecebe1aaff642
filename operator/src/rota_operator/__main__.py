"""`python -m rota_operator`: the part as a program. Started by `rota`, by container images and by tests."""

import argparse
from importlib.metadata import version


def main() -> None:
    """Answer --version; there is nothing to start yet, and that is said instead of shown."""
    parser = argparse.ArgumentParser(
        prog="rota-operator", description="The Kubernetes operator for ConsumerGroup resources."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-operator')}")
    parser.parse_args()
    parser.error("this version has nothing to start yet; see CHANGELOG.md for what each part can do")


if __name__ == "__main__":
    main()
