"""
Pip's settings on this machine, for the pip inside an image build.

Called by `images`. A build starts with an empty environment; without this it would work only where the public
index can be reached without any setting. The settings are mounted, never written into an image.
"""

import configparser
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CONFIGURATION = (Path("/etc/pip.conf"), Path("~/.pip/pip.conf"), Path("~/.config/pip/pip.conf"))
# The rest is taste (colours, progress bars) or would break the build (--user, --target).
PASSED_ON = (
    "index-url",
    "extra-index-url",
    "trusted-host",
    "proxy",
    "cert",
    "find-links",
    "default-timeout",
    "retries",
)
PATHS = ("cert", "find-links")
# Where pip finds authorities when no setting names them, first match wins.
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE")
DEBIAN_BUNDLE = "/etc/ssl/certs/ca-certificates.crt"


@dataclass(frozen=True, slots=True)
class Settings:
    """pip's options by name."""

    options: Mapping[str, str]

    def text(self) -> str:
        """As a pip.conf."""
        # No interpolation: a password in an address may hold a per cent sign.
        config = configparser.RawConfigParser()
        config["global"] = dict(self.options)
        text = io.StringIO()
        config.write(text)
        return text.getvalue()

    def files(self) -> list[Path]:
        """Files on this machine that the options name."""
        named = [Path(word) for option in PATHS for word in self.options.get(option, "").split()]
        return [path for path in named if path.is_absolute() and path.exists()]


def of_this_machine() -> Settings:
    """Options of a pip that is started here."""
    return read([path.expanduser() for path in CONFIGURATION], os.environ)


def read(files: Sequence[Path], environment: Mapping[str, str]) -> Settings:
    """The options of `files`, the later one wins, overruled by PIP_* of `environment`."""
    config = configparser.RawConfigParser()
    config.read(files)
    options = {"cert": next((environment[name] for name in BUNDLES if name in environment), DEBIAN_BUNDLE)}
    for option in PASSED_ON:
        for section in ("global", "install"):
            if config.has_option(section, option):
                options[option] = config.get(section, option)
        variable = f"PIP_{option.upper().replace('-', '_')}"
        if variable in environment:
            options[option] = environment[variable]
    return Settings(options)
