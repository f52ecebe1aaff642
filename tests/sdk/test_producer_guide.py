"""The guide names every setting of the producer with its default, and its samples run."""

import re
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from rota.producer.options import FOREVER, Options
from tests.support.coordinator import serving
from tests.support.tree import REPO

GUIDE = (REPO / "docs/guide/producer.md").read_text()
# Of the default, where a plain number would tell nobody anything.
SAID = {
    "acks": '"all"',
    "enable_idempotence": "as `acks` allows",
    "batch_size": "256 KiB",
    "buffer_memory": "32 MiB",
    "max_request_size": "1 MiB",
    "partitioner": "murmur2, sticky",
    "retries": "until the time is up",
    "coordination": '`"Auto"`',
    "key_serializer": "bytes as they are",
    "value_serializer": "bytes as they are",
}
SIZES = {"batch_size": 256 << 10, "buffer_memory": 32 << 20, "max_request_size": 1 << 20, "retries": FOREVER}


def documented() -> dict[str, str]:
    """The settings of the table, each with its default."""
    found: dict[str, str] = {}
    section = GUIDE.split("\n## Settings\n", 1)[1].split("\n## ", 1)[0]
    for names, default, _ in re.findall(r"^\| (`.*?) \| ?(.*?) ?\| ?(.*?) ?\|$", section, re.MULTILINE):
        each = names.replace("`", "").split(", ")
        defaults = default.split(", ") if len(each) > 1 and each[0] not in SAID else [default] * len(each)
        found.update(zip(each, defaults, strict=True))
    return found


def test_every_setting_is_documented_with_its_default() -> None:
    defaults = {
        each.name: SAID.get(each.name, "" if each.default in (MISSING, None, "") else str(each.default))
        for each in fields(Options)
    }
    assert {name: default.strip("`") for name, default in documented().items()} == {
        name: default.strip("`") for name, default in defaults.items()
    }
    assert {name: getattr(Options(), name) for name in SIZES} == SIZES


@pytest.mark.process
def test_the_first_sample_runs(tmp_path: Path) -> None:
    sample = GUIDE.split("```python\n", 1)[1].split("```", 1)[0]
    with serving(tmp_path) as coordinator:
        script = sample.replace("127.0.0.1:7070", coordinator.address)
        said = subprocess.check_output([sys.executable, "-c", script], text=True)
    promised = re.search(r"# (RecordMetadata.*)timestamp_ms", sample)
    assert promised is not None
    assert said.startswith(promised.group(1))
