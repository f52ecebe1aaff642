"""Times, durations and sizes as people write them."""

import pytest

from rota_cli.commands import parsing
from rota_cli.errors import WrongUsage


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("PT30S", 30_000),
        ("PT0.5S", 500),
        ("P7D", 604_800_000),
        ("P1DT2H3M4S", 93_784_000),
        ("90m", 5_400_000),
        ("1.5h", 5_400_000),
        ("250ms", 250),
    ],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert parsing.duration_ms("--for", text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1", "h", "-1h", "PT1H ", "1h30m"])
def test_what_is_no_duration_is_refused_by_the_name_of_its_flag(text: str) -> None:
    with pytest.raises(WrongUsage, match=r"--for .*: expected a duration such as PT1H30M"):
        parsing.duration_ms("--for", text)


def test_a_time_has_a_zone() -> None:
    assert parsing.timestamp_ms("--at", "2026-09-20T02:00:00+02:00") == 1_789_862_400_000
    assert parsing.timestamp_ms("--at", "2026-09-20T00:00:00.250Z") == 1_789_862_400_250
    with pytest.raises(WrongUsage, match=r"--at 2026-09-20: add a time zone, such as 2026-09-20Z for UTC"):
        parsing.timestamp_ms("--at", "2026-09-20")
    with pytest.raises(WrongUsage, match="--at yesterday: expected a time such as"):
        parsing.timestamp_ms("--at", "yesterday")


def test_limits_of_a_topic() -> None:
    assert (parsing.retention_ms(""), parsing.retention_ms("forever"), parsing.retention_ms("1d")) == (
        None,
        -1,
        86_400_000,
    )
    assert (parsing.retention_bytes(""), parsing.retention_bytes("unlimited")) == (None, -1)
    assert (parsing.retention_bytes("100"), parsing.retention_bytes("2GiB")) == (100, 2 << 30)
    with pytest.raises(WrongUsage, match="--retention-bytes 1GB: expected a size"):
        parsing.retention_bytes("1GB")
