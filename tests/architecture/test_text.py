"""The repository speaks of Rota alone: no paths of a developer's machine, no package hosts, no binary files."""

import re

from tests.support.tree import REPO, files

# In pieces, so that this file does not find itself.
HOSTS = re.compile(
    r"pypi\.(org|io)|python" r"hosted|crates\.io/|proxy\.golang" r"\.|registry\.npm" r"js|repo1?\.maven"
    r"|deb\.deb" r"ian|security\.deb" r"ian|mirror\.[a-z]+\.(com|org)",
    re.IGNORECASE,
)  # fmt: skip
LOCAL_PATHS = re.compile(r"(?<![\w.$}/-])/(work|root|farm|home|Users)/\w")


def test_no_file_names_a_package_host_or_a_local_path() -> None:
    offenders = []
    for path in files():
        if path.suffix == ".sum":
            continue  # checksums of Go modules, which are named after hosts
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for what, pattern in (("package host", HOSTS), ("local path", LOCAL_PATHS)):
                if pattern.search(line):
                    offenders.append(f"{path.relative_to(REPO)}:{number}: {what}: {line.strip()[:80]}")
    assert offenders == []


def test_no_file_is_binary() -> None:
    assert [str(path.relative_to(REPO)) for path in files() if b"\0" in path.read_bytes()] == []


def test_the_patterns_find_what_they_are_for() -> None:
    assert HOSTS.search("https://" + "pypi." + "org/simple")
    assert LOCAL_PATHS.search("cd /" + "home/somebody/rota")
    assert not LOCAL_PATHS.search("$HOME/work/x and ./work/y")
