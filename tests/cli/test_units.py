"""Times, durations and sizes as people write them."""

import pytest

from rota_cli import units
from rota_cli.failures import WrongUsage


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
    assert units.duration_ms("--for", text) == expected_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1", "h", "-1h", "PT1H ", "1h30m"])
def test_what_is_no_duration_is_refused_by_the_name_of_its_flag(text: str) -> None:
    with pytest.raises(WrongUsage, match=r"--for .*: give a duration as PT1H30M"):
        units.duration_ms("--for", text)


def test_a_time_has_a_zone() -> None:
    assert units.timestamp_ms("--at", "2026-09-20T02:00:00+02:00") == 1_789_862_400_000
    assert units.timestamp_ms("--at", "2026-09-20T00:00:00.250Z") == 1_789_862_400_250
    with pytest.raises(WrongUsage, match=r"--at 2026-09-20: say in which zone, as 2026-09-20Z for UTC"):
        units.timestamp_ms("--at", "2026-09-20")
    with pytest.raises(WrongUsage, match="--at yesterday: give a time as"):
        units.timestamp_ms("--at", "yesterday")


def test_limits_of_a_topic() -> None:
    assert (units.retention_ms(""), units.retention_ms("forever"), units.retention_ms("1d")) == (
        None,
        -1,
        86_400_000,
    )
    assert (units.retention_bytes(""), units.retention_bytes("unlimited")) == (None, -1)
    assert (units.retention_bytes("100"), units.retention_bytes("2GiB")) == (100, 2 << 30)
    with pytest.raises(WrongUsage, match="--retention-bytes 1GB: give a size"):
        units.retention_bytes("1GB")


def test_what_is_said_is_short_and_exact() -> None:
    assert [units.spoken_retention(value) for value in (None, -1, 0, 86_400_000, 5_400_000, 1_234)] == [
        None,
        "forever",
        "0d",
        "1d",
        "90m",
        "1234ms",
    ]
    assert [units.spoken_size(value) for value in (None, -1, 1536, 3 << 20)] == [
        None,
        "unlimited",
        "1536",
        "3MiB",
    ]
    assert units.spoken_time(1_789_862_400_250) == "2026-09-20T00:00:00.250Z"
    assert units.spoken_time(-1) == "-1"
