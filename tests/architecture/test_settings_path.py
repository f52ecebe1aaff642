"""A setting passes few files and three representations from a ConsumerGroup to the member: spec, GroupSettings, SidecarConfig."""

import re
from pathlib import Path

from tests.support.tree import REPO, written_python

# The field in YAML and JSON, in Python and protobuf, as a flag, and in the flags' declarations.
NAMES = re.compile(
    r"\b(sessionTimeoutSeconds|session_timeout_seconds|session-timeout-ms|session_timeout_ms|SESSION_TIMEOUT_MS)\b"
)
PARTS = ("operator/src", "sidecar/src", "proto/rota/fleet")
# Where the member's configuration is read: requests to coordinators, and the member's own timers.
MEMBER_FOLDERS = ("sidecar/src/rota_sidecar/core/member", "sidecar/src/rota_sidecar/engines")
SPEC = "operator/src/rota_operator/spec/membership.py"
GROUP_SETTINGS = "proto/rota/fleet/v1/settings.proto"
SIDECAR_CONFIG = {
    # Declares the flag and the setting.
    "sidecar/src/rota_sidecar/config/flags.py",
    # Makes the configuration.
    "sidecar/src/rota_sidecar/config/loading.py",
    # MemberConfig, a part of it.
    "sidecar/src/rota_sidecar/core/member/config.py",
}
FILES_MAX = 5


def sources() -> list[Path]:
    return [*written_python(), *(REPO / "proto").rglob("*.proto")]


def is_on_the_way(path: str) -> bool:
    is_after_it = path.startswith(MEMBER_FOLDERS) and path not in SIDECAR_CONFIG
    return path.startswith(PARTS) and not is_after_it


def test_the_session_timeout_passes_five_files_and_three_representations() -> None:
    named = {str(path.relative_to(REPO)) for path in sources() if NAMES.search(path.read_text())}
    way = {path for path in named if is_on_the_way(path)}
    assert way == {SPEC, GROUP_SETTINGS, *SIDECAR_CONFIG}, (
        "a setting is named where it is declared and made, nowhere else"
    )
    assert len(way) <= FILES_MAX
