"""A Fleet stream that is rejected in a cluster is a structured log record, and many of them are few records."""

import json
import subprocess
import sys

import pytest

from rota_operator.cluster.rejection_limit import RECORDS_MAX
from tests.support.tree import REPO

pytestmark = pytest.mark.process


def test_a_rejected_stream_is_one_record_and_a_flood_of_them_is_not() -> None:
    program = [sys.executable, "-W", "error", "-m", "tests.operator.cluster.rejected_streams"]
    done = subprocess.run([*program, str(RECORDS_MAX + 5)], cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["level"], each["event"], each.get("suppressed")) for each in records] == [
        ("warning", "fleet_rejection", 0)
    ] * RECORDS_MAX, (records, done.stderr)
    first = records[0]
    assert first["peer"].startswith("ipv4:127.0.0.1:")
    assert first["reason"].startswith("the call has no token")
    assert first["message"] == f"rejected a sidecar at {first['peer']}: {first['reason']}"
