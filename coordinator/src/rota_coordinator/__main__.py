"""`python -m rota_coordinator`: the part as a program. Started by `rota`, by container images and by tests."""

import argparse
from importlib.metadata import version


def main() -> None:
    """Answer --version; there is nothing to start yet, and that is said instead of shown."""
    parser = argparse.ArgumentParser(
        prog="rota-coordinator", description="The group coordinator and the embedded topic log."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-coordinator')}")
    parser.parse_args()
    parser.error("this version has nothing to start yet; see CHANGELOG.md for what each part can do")


if __name__ == "__main__":
    main()
