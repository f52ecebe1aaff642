"""
Container images without a registry: each is one file that nodes import.

`base()` and `pause()` are made when a cluster is prepared, `part()` when a test wants one of Rota's images.
An image is named after what it was made from, so a changed source gives a new image and an unchanged one
costs nothing.
"""

import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support import cache
from tests.support.cluster import pip_settings
from tests.support.cluster.builder import Builder, BuildFailed, Recipe
from tests.support.unavailable import Unavailable

CHECKOUT = Path(__file__).parents[3]
DOCKERFILES = Path(__file__).parent / "dockerfiles"
BASE_PACKAGES = ("python3", "python3-pip", "python3-venv")
JAVA = "openjdk-17-jre-headless"
# Nobody reads manuals in a container.
LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
# Scripts of the Java's packages put links into this folder, which is left out.
MAKE_FOLDER_OF_MANUALS = '--essential-hook=mkdir -p "$1/usr/share/man/man1"'
NOT_SOURCES = {"__pycache__", "dist"}


@dataclass(frozen=True, slots=True)
class Image:
    """A built image."""

    name: str
    archive: Path


def base() -> Image:
    """Base image of our Dockerfiles in tests: a minimal Debian with Python, pip and venv."""
    return _debian("base", BASE_PACKAGES)


def base_with_java() -> Image:
    """Base image of Spark applications: the same with Java."""
    return _debian("base-java", (*BASE_PACKAGES, JAVA))


def _debian(what: str, packages: Sequence[str]) -> Image:
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    dockerfile = DOCKERFILES / f"{what}.Dockerfile"

    def build(name: str, folder: Path, archive: Path) -> None:
        builder = Builder(folder)
        tar = folder / "context" / "base.tar"
        tar.parent.mkdir()
        excluded = [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
        excluded += [MAKE_FOLDER_OF_MANUALS] if JAVA in packages else []
        try:
            builder.run(["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}", *excluded,
                         '--aptopt=Apt::Install-Recommends "0"', release, tar, _mirror(release)])  # fmt: skip
        except BuildFailed as failed:
            raise Unavailable(
                f"no base image, check that a package mirror can be reached: {failed}"
            ) from failed
        builder.image(name, Recipe(dockerfile, tar.parent), archive)

    return _once(what, cache.key_of(release, *packages, *LEFT_OUT, dockerfile), build)


def pause(reaper: Path) -> Image:
    """The image of the container that holds a pod's namespaces."""
    dockerfile = DOCKERFILES / "pause.Dockerfile"

    def build(name: str, folder: Path, archive: Path) -> None:
        builder = Builder(folder)
        context = folder / "context"
        context.mkdir()
        shutil.copy(reaper, context)
        builder.image(name, Recipe(dockerfile, context), archive)

    return _once("pause", cache.key_of(reaper, dockerfile), build)


def part(name: str) -> Image:
    """One of Rota's own images, from the Dockerfile that users build: `part("sidecar")`."""
    return _from_dockerfile(name, name)


def example(name: str) -> Image:
    """The image of an example, which has the SDK: `example("orders")`."""
    return _from_dockerfile(f"example-{name}", "sdk", name, "example")


def spark_example(name: str) -> Image:
    """The image of an example, which has Spark: `spark_example("spark-orders")`."""
    return _from_dockerfile(name, "spark_apps", name, "spark")


def _from_dockerfile(what: str, name: str, example: str = "", target: str = "") -> Image:
    """Build a part, or with the SDK or Spark an example; `target` is the stage of the Dockerfile."""
    below = base_with_java() if target == "spark" else base()
    files = ("Dockerfile", ".dockerignore", "constraints.txt", "scripts/pins.py")
    folders = list(dict.fromkeys(("proto", "service", "sdk", name)))
    folders += [f"examples/{example}"] if example else []
    sources = [CHECKOUT / file for file in files]
    sources += [source for folder in folders for source in _sources(CHECKOUT / folder)]
    key = cache.key_of(below.name, *[str(source.relative_to(CHECKOUT)) for source in sources], *sources)

    def build(tag: str, folder: Path, archive: Path) -> None:
        builder = Builder(folder)
        settings = pip_settings.of_this_machine()
        (folder / "pip.conf").write_text(settings.text())
        recipe = Recipe(
            dockerfile=CHECKOUT / "Dockerfile",
            context=CHECKOUT,
            arguments={"BASE": f"docker-archive:{below.archive}", "PART": name, "EXAMPLE": example},
            target=target,
            mounts={Path("/etc/pip.conf"): folder / "pip.conf", **{path: path for path in settings.files()}},
        )
        builder.image(tag, recipe, archive)

    return _once(what, key, build)


class _Build(Protocol):
    def __call__(self, name: str, folder: Path, archive: Path, /) -> None: ...


def _once(what: str, key: str, build: _Build) -> Image:
    name = f"localhost/rota-{what}:{key}"

    def build_in(folder: Path) -> None:
        # A workshop holds a store of several times the image's size, and pip's settings: only the image stays.
        workshop = folder / "workshop"
        build(name, workshop, folder / "image.tar")
        shutil.rmtree(workshop)

    return Image(name, cache.build_once(f"image-{what}", key, build_in) / "image.tar")


def _sources(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not NOT_SOURCES.intersection(path.relative_to(folder).parts):
            yield path


def _mirror(release: str) -> str:
    """The mirror that this machine's own apt uses."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(CODENAME) $(SITE)", "Created-By: Packages"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    for line in listed.stdout.splitlines():
        codename, _, site = line.partition(" ")
        if codename == release:
            return site
    raise Unavailable(
        f"apt knows no mirror of {release}: add one to /etc/apt/sources.list to build images from"
    )
