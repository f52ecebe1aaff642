"""Every dependency that a part declares is pinned for it, and every licence is accepted."""

import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import metadata, requires
from types import SimpleNamespace
from typing import cast

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.generate_licences import Refused, expression, licence_of
from scripts.pins import EXTRAS, FILE, PARTS, read
from tests.support.tree import REPO

FOLDERS = {name: folder for folder, name in PARTS.items()}


def required_by(name: str) -> Sequence[str]:
    """Requirements of a distribution: those of Rota's parts from their files here, which may be newer than what is installed."""
    if name not in FOLDERS:
        return requires(name) or ()
    project = tomllib.loads((REPO / FOLDERS[name] / "pyproject.toml").read_text())["project"]
    optional = project.get("optional-dependencies", {})
    extras = [f"{line}; extra == {extra!r}" for extra, lines in optional.items() for line in lines]
    return [*project["dependencies"], *extras]


def closure(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> Iterator[str]:
    """The names of all that a distribution requires here, directly or not."""
    for line in required_by(name):
        requirement = Requirement(line)
        environments: list[dict[str, str]] = [{"extra": extra} for extra in (extras or {""})]
        if requirement.marker is not None and not any(map(requirement.marker.evaluate, environments)):
            continue
        needed = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if needed not in seen:
            seen.add(needed)
            yield needed[0]
            yield from closure(*needed, seen)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_has_pins_of_what_it_needs_and_of_nothing_else(part: str) -> None:
    needed = set(closure(PARTS[part], frozenset(EXTRAS.get(part, ())), set())) - set(PARTS.values())
    # Those with a marker are for other platforms, or for other Pythons.
    pins = [pin for pin in read(FILE.read_text()) if part in pin.sets]
    assert needed <= {pin.name for pin in pins}
    assert {pin.name for pin in pins if ";" not in pin.requirement} <= needed


def test_what_is_installed_here_is_what_is_pinned() -> None:
    pins = [pin for pin in read(FILE.read_text()) if ";" not in pin.requirement]
    assert {pin.name: metadata(pin.name)["Version"] for pin in pins} == {
        pin.name: pin.version for pin in pins
    }


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        (
            {"License-Expression": ["Apache-2.0 OR (BSD-2-Clause AND MIT)"]},
            "Apache-2.0 OR (BSD-2-Clause AND MIT)",
        ),
        (
            {
                "License-Expression": ["GPL-3.0-only"],
                "Classifier": ["License :: OSI Approved :: MIT License"],
            },
            "",
        ),
        ({"License-Expression": ["MIT AND GPL-3.0-only"]}, ""),
        ({"License": ["Apache 2.0"]}, "Apache-2.0"),
        ({"License": ["see the file"], "Classifier": ["License :: OSI Approved :: MIT License"]}, "MIT"),
        ({"License": ["any-OSI"]}, ""),
        ({}, ""),
    ],
)
def test_a_licence_that_is_unknown_or_not_accepted_is_refused(
    fields: dict[str, list[str]], licence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cast("object", SimpleNamespace(get_all=fields.get))
    assert expression(found) == licence  # type: ignore[arg-type]
    monkeypatch.setattr("scripts.generate_licences.metadata", lambda name: found)
    if not licence:
        with pytest.raises(
            Refused, match=r"some-name has no licence that is accepted: .* replace the dependency"
        ):
            licence_of("some-name")
