"""Writes crds/consumergroups.yaml from its declaration in rota_operator.spec; `--check` only compares. Called by make."""

import argparse
import sys
from pathlib import Path

import yaml
from typing_extensions import override

from rota_operator.spec import crd

FILE = Path(__file__).parents[1] / "crds" / "consumergroups.yaml"
HEAD = "# Generated from operator/src/rota_operator/spec by `make crds`; do not edit.\n"


class Plain(yaml.SafeDumper):
    """Says everything where it stands: an anchor helps no reader."""

    @override
    def ignore_aliases(self, data: object) -> bool:
        """Always."""
        return True


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    wanted = HEAD + yaml.dump(crd.definition(), Dumper=Plain, sort_keys=False, width=120, allow_unicode=True)
    if not parser.parse_args().check:
        FILE.write_text(wanted)
    elif not FILE.exists() or FILE.read_text() != wanted:
        sys.exit(f"crds: {FILE.name} is not what its declaration says; run 'make crds'")
    else:
        print("crds: ok")


if __name__ == "__main__":
    main()
