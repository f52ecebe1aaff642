"""
Files of the offset resets of one group, in the folder `resets/NAMESPACE.NAME` of the runner's home.

`record.json` is what `status.offsetReset` is in a cluster: the next runner goes on from it. Plans are manifests of ConfigMaps in
`NAME.yaml`, in the format of `resets.documents`, for people to review and for `fromConfigMap`.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rota_operator.local.paths import write_atomically
from rota_operator.resets.documents import documents_of, part_count, part_name, plan_in
from rota_operator.resets.plan import Plan, ResetRefused
from rota_operator.spec.status import OffsetReset
from rota_operator.spec.validation import InvalidSpec, parse_model
from rota_operator.status.status import model_json
from rota_service.private_files import FOLDER_MODE

# Of one file: a table of `resets.documents`, its indentation, and the rest.
BYTES_MAX = 4 << 20


class UnreadableRecord(Exception):
    """The record cannot be read; no offset is reset. The message is one line for the user."""


class ResetFiles:
    """Record and plans of one group. Every method raises OSError."""

    def __init__(self, folder: Path, group_id: str, namespace: str, timestamp: Callable[[int], str]) -> None:
        self.folder = folder
        self._record = folder / "record.json"
        self._group_id = group_id
        self._namespace = namespace
        self._timestamp = timestamp

    @property
    def exist(self) -> bool:
        """True if a runner has seen the group before."""
        return self._record.exists()

    def read_record(self) -> OffsetReset | None:
        """Read the record; None: there was no reset yet. Raises UnreadableRecord."""
        if not self.exist:
            return None
        try:
            found = json.loads(self._record.read_bytes())
            return parse_model(OffsetReset, found, ("record",)) if found else None
        except (ValueError, InvalidSpec) as error:
            raise UnreadableRecord(
                f"{self._record} cannot be read ({error}); remove it to forget all offset resets of the group"
            ) from None

    def write_record(self, record: OffsetReset | None) -> None:
        """Replace the record; None: the group is seen, and has no reset yet."""
        self.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        write_atomically(self._record, json.dumps({} if record is None else model_json(record), indent=1))

    def plan_file(self, name: str) -> Path:
        """Return the file of a plan, or of a part of one."""
        return self.folder / f"{name}.yaml"

    def write_plan(self, name: str, plan: Plan) -> None:
        """Write a plan; one of the same name is replaced."""
        self.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        for document in documents_of(plan, name, self._timestamp):
            manifest = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": document.name, "namespace": self._namespace},
                "data": dict(document.data),
            }
            text = yaml.dump(manifest, Dumper=BlockDumper, sort_keys=False, allow_unicode=True, width=1000)
            write_atomically(self.plan_file(document.name), text)

    def read_plan(self, name: str, plan_hash: str = "") -> Plan:
        """Read a plan; with `plan_hash`, the one of this hash. Raises ResetRefused."""
        first = self._data(name)
        others = [self._data(part_name(name, part)) for part in range(2, part_count(name, first) + 1)]
        return plan_in(name, [first, *others], self._group_id, plan_hash)

    def _data(self, name: str) -> Mapping[str, str] | None:
        """Return the data of a ConfigMap; None: there is no such file. Raises ResetRefused."""
        file = self.plan_file(name)
        try:
            with file.open("rb") as opened:
                text = opened.read(BYTES_MAX + 1)
        except FileNotFoundError:
            return None
        try:
            found = yaml.safe_load(text) if len(text) <= BYTES_MAX else None
        except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
            found = None
        data: Any = found.get("data") if isinstance(found, dict) else None
        if not isinstance(data, dict) or not all(
            isinstance(key, str) and isinstance(value, str) for key, value in data.items()
        ):
            raise ResetRefused(
                f"{file} is not a ConfigMap with the plan of an offset reset; make a new dry run"
            )
        return data


class BlockDumper(yaml.SafeDumper):
    """YAML with tables as blocks, one line for each line."""


def represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Represent a text; one of several lines as a block."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


BlockDumper.add_representer(str, represent_text)
