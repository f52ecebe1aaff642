"""Times, durations and sizes as people read them."""

from rota_cli.output import units


def test_what_is_said_is_short_and_exact() -> None:
    assert [units.humanize_retention(value) for value in (None, -1, 0, 86_400_000, 5_400_000, 1_234)] == [
        None,
        "forever",
        "0d",
        "1d",
        "90m",
        "1234ms",
    ]
    assert [units.humanize_size(value) for value in (None, -1, 1536, 3 << 20)] == [
        None,
        "unlimited",
        "1536",
        "3MiB",
    ]
    assert units.format_timestamp(1_789_862_400_250) == "2026-09-20T00:00:00.250Z"
    assert units.format_timestamp(-1) == "-1"
