"""
Generate rota_proto from the .proto files, or check that the committed files are up to date.

Run by `make proto` and, with --check, by `make check`. The sources import each other as `rota/…`, which is
what buf and other languages expect. In Python that name is the SDK's, so the files are compiled from a copy
in which the path is `rota_proto/…`; the protobuf packages stay `rota.<service>.v1`.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

PROTO = Path(__file__).parents[1] / "proto"
GENERATED = PROTO / "src" / "rota_proto"
PATTERNS = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py", "*_pb2_grpc.pyi")


def generate(into: Path) -> dict[Path, bytes]:
    """Return the generated files by their path below `rota_proto`; `into` is an empty working folder."""
    staged, output = into / "staged", into / "output"
    output.mkdir(parents=True)
    sources = sorted((PROTO / "rota").rglob("*.proto"))
    names = []
    for source in sources:
        copy = staged / "rota_proto" / source.relative_to(PROTO / "rota")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(source.read_text().replace('import "rota/', 'import "rota_proto/'))
        names.append(str(copy.relative_to(staged)))
    outputs = [f"--python_out={output}", f"--grpc_python_out={output}"]
    outputs += [f"--mypy_out=quiet:{output}", f"--mypy_grpc_out=quiet:{output}"]
    # The plugins beside the running interpreter, not those on PATH.
    plugins = [
        f"--plugin={Path(sys.executable).with_name(f'protoc-gen-{name}')}" for name in ("mypy", "mypy_grpc")
    ]
    if protoc.main(["protoc", f"-I{staged}", *plugins, *outputs, *names]) != 0:
        sys.exit("proto: protoc refused the sources, see above")
    below = output / "rota_proto"
    return {
        found.relative_to(below): found.read_bytes() for pattern in PATTERNS for found in below.rglob(pattern)
    }


def committed() -> dict[Path, bytes]:
    """Return the generated files of the working tree."""
    return {
        found.relative_to(GENERATED): found.read_bytes()
        for pattern in PATTERNS
        for found in GENERATED.rglob(pattern)
    }


def main() -> None:
    """Generate the files, or compare them with --check."""
    parser = argparse.ArgumentParser(description="Generate the gRPC code.")
    parser.add_argument("--check", action="store_true", help="change nothing, fail when the tree differs")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as folder:
        wanted = generate(Path(folder))
    found = committed()
    differing = sorted(
        str(path) for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path)
    )
    if check:
        if differing:
            sys.exit(
                f"proto: {', '.join(differing)} below {GENERATED.relative_to(PROTO.parent)} "
                "is not what the .proto files give; run `make proto` and commit the result"
            )
        return
    for path in found.keys() - wanted.keys():
        (GENERATED / path).unlink()
    for path, data in wanted.items():
        target = GENERATED / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    print(f"proto: {len(differing)} of {len(wanted)} files changed")


if __name__ == "__main__":
    main()
