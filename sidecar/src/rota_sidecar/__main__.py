"""`python -m rota_sidecar`: the part as a program. Started by `rota`, by container images and by tests."""

import argparse
from importlib.metadata import version


def main() -> None:
    """Answer --version; there is nothing to start yet, and that is said instead of shown."""
    parser = argparse.ArgumentParser(
        prog="rota-sidecar", description="The group member beside an application."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('rota-sidecar')}")
    parser.parse_args()
    parser.error("this version has nothing to start yet; see CHANGELOG.md for what each part can do")


if __name__ == "__main__":
    main()
