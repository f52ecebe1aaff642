"""Times are formatted as the API server does, in UTC."""

from rota_operator.timestamps import micro_timestamp, timestamp


def test_a_time_has_whole_seconds_rounded_down() -> None:
    assert timestamp(1_700_000_000_999) == "2023-11-14T22:13:20Z"


def test_a_micro_time_has_six_digits() -> None:
    assert micro_timestamp(1_700_000_000_045) == "2023-11-14T22:13:20.045000Z"
