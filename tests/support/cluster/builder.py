"""
Debian's image tools, run from where they were unpacked.

Called by `images`. They mount things and start helpers, so they run in namespaces of their own: whatever
happens to a build, its mounts and its processes go with it, and the machine's own are never touched.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import debian
from tests.support.processes import Process

PACKAGES = ("buildah", "mmdebstrap")
BUILD_WITHIN_S = 900
# buildah and its store ask for files that an installed package would have put into /etc.
SETTINGS = {
    "policy.json": '{"default": [{"type": "insecureAcceptAnything"}]}',
    "storage.conf": '[storage]\ndriver = "overlay"\n',
    "registries.conf": "",
    "containers.conf": "",
}
# buildah starts itself again with an empty environment, so LD_LIBRARY_PATH does not reach that one: let the
# loader find the unpacked libraries the way it finds installed ones. Only this mount namespace sees it.
SEE_LIBRARIES = 'mount --bind "$0" /etc/ld.so.cache && exec "$@"'


class BuildFailed(Exception):
    """An image could not be built; the message holds the end of what the tool said."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Inputs of an image build."""

    dockerfile: Path
    context: Path
    arguments: dict[str, str] = field(default_factory=dict)
    target: str = ""
    """Stage of the Dockerfile; empty: the last one."""
    mounts: dict[Path, Path] = field(default_factory=dict)
    """Files of this machine that build steps see, by where they see them; they stay out of the image."""


class Builder:
    """A workshop in a folder; delete the folder when done."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tools = debian.unpack("buildah", *PACKAGES)
        folder.mkdir()
        for name, content in SETTINGS.items():
            (folder / name).write_text(content)
        libraries = self.tools.environment()["LD_LIBRARY_PATH"].split(":")
        subprocess.run(["ldconfig", "-C", folder / "ld.so.cache", *libraries], check=True)

    def image(self, name: str, recipe: Recipe, archive: Path) -> None:
        """Build and write the image as one file, uncompressed: nodes import that in half the time."""
        options = [f"--build-arg={key}={value}" for key, value in recipe.arguments.items()]
        options += [f"--volume={source}:{target}:ro" for target, source in recipe.mounts.items()]
        options += [f"--target={recipe.target}"] if recipe.target else []
        self._buildah("build", "--isolation", "chroot", "--network", "host", *options, "--file", recipe.dockerfile,
                      "--tag", name, recipe.context)  # fmt: skip
        self._buildah("push", name, f"docker-archive:{archive}:{name}")

    def _buildah(self, verb: str, *arguments: str | Path) -> None:
        store = [
            f"--root={self.folder / 'store'}",
            f"--runroot={self.folder / 'run'}",
            "--storage-driver=overlay",
        ]
        self.run(["buildah", *store, verb, f"--signature-policy={self.folder / 'policy.json'}", *arguments])

    def run(self, command: Sequence[str | Path]) -> None:
        """Run a tool to its end; it may mount what it likes."""
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        see_libraries = ["sh", "-c", SEE_LIBRARIES, str(self.folder / "ld.so.cache")]
        log = self.folder / "build.log"
        tool = Process.start(
            str(command[0]), [*apart, *see_libraries, *command], log=log, env=self._environment()
        )
        try:
            code = tool.wait(within_s=BUILD_WITHIN_S)
        finally:
            tool.kill()
        if code != 0:
            raise BuildFailed(
                f"{command[0]} ended with code {code} in {self.folder}; it said:\n{tool.tail()}"
            )

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": self.tools.environment()["PATH"],
            "TMPDIR": str(self.folder),
            "CONTAINERS_CONF": str(self.folder / "containers.conf"),
            "CONTAINERS_REGISTRIES_CONF": str(self.folder / "registries.conf"),
            "CONTAINERS_STORAGE_CONF": str(self.folder / "storage.conf"),
        }
