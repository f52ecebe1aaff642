"""A consumer without its sidecar: silent while the sidecar starts, then a warning, then an error."""

import pytest

from rota import errors
from rota.consumer.outage import Outage

LIMIT_S = 60.0
GONE = errors.Disconnected("the sidecar at 127.0.0.1:9 cannot be reached: check whether it is running")


def test_an_absence_is_a_warning_after_three_seconds_and_an_error_after_the_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = [0.0]
    absence = Outage(lambda: now_s[0], LIMIT_S)
    for now_s[0] in (0.1, 1.0, 3.0):
        absence.on_failure(GONE)
        absence.check()
    assert caplog.records == []
    for now_s[0] in (4.0, 5.0, 60.0):
        absence.on_failure(GONE)
        absence.check()
    assert [(each.levelname, each.message) for each in caplog.records] == [("WARNING", str(GONE))]
    now_s[0] = 60.1
    with pytest.raises(errors.Disconnected):
        absence.check()


def test_each_absence_is_counted_and_logged_anew(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    absence = Outage(lambda: now_s[0], LIMIT_S)
    for start_s in (0.0, 100.0):
        for now_s[0] in (start_s, start_s + 4.0):
            absence.on_failure(GONE)
            absence.check()
        absence.on_attached()
        absence.check()
    assert len(caplog.records) == 2
