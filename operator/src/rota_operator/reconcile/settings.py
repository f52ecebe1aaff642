"""
Settings that sidecars read when they start: which of them need a restart to change, and their ConfigMap.

Settings are changed by an order where that suffices. The sidecar refuses an order whole that changes one of RESTART_PATHS
(a test compares them with the sidecar's flags): their hash stands on the pod template, so that changing one of them
rolls the pods, and sidecars of pods with another hash get no orders.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rota_operator.plan.settings import settings_json
from rota_operator.reconcile.observed import OperatorSettings
from rota_operator.spec.model import ConsumerGroupSpec
from rota_operator.spec.schema import paths_needing_restart

# Declared in `rota_operator.spec`.
RESTART_PATHS: Sequence[tuple[str, ...]] = tuple(sorted(paths_needing_restart(ConsumerGroupSpec)))
SETTINGS_FILE = "settings.json"
AUTHORITY_FILE = "ca.crt"
HASH_LENGTH = 16


def settings_text(spec: ConsumerGroupSpec) -> str:
    """Return the settings as sidecars read them."""
    return settings_json(spec).decode()


def config_map_data(spec: ConsumerGroupSpec, settings: OperatorSettings) -> Mapping[str, str]:
    """Return the data of the group's ConfigMap."""
    authority = {AUTHORITY_FILE: settings.authority} if settings.authority else {}
    return {SETTINGS_FILE: settings_text(spec), **authority}


def settings_hash(spec: ConsumerGroupSpec) -> str:
    """Return the hash of the settings that only a restart applies."""
    written = spec.model_dump(mode="json", by_alias=True)
    text = json.dumps([[list(path), _value_at(written, path)] for path in RESTART_PATHS])
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def _value_at(written: Mapping[str, Any], path: Sequence[str]) -> Any:  # noqa: ANN401  any JSON value
    found: Any = written
    for name in path:
        found = found[name]
    return found
