"""Log lines about a handler that raises."""

import re

import pytest

import rota
from rota.testing import Group
from tests.sdk.consumer.test_handlers import AnyRecord, said_by_handlers


def test_an_exception_is_logged_as_one_line_with_the_frames_of_the_application(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def price_of(value: bytes) -> int:
        return int(value)

    @rota.handler("orders")
    def work(record: AnyRecord) -> None:
        price_of(record.value)

    @rota.handler("refunds")
    async def work_too(record: AnyRecord) -> None:
        price_of(record.value)

    with Group(partitions=1, retries=0) as group, caplog.at_level("INFO"):
        group.send("orders", b"much")
        group.send("refunds", b"less")
        group.run(work, work_too)
    said = sorted(said_by_handlers(caplog))
    assert len(said) == 2
    for line, topic in zip(said, ("orders", "refunds"), strict=True):
        assert line.startswith(
            f"{topic}[0] at offset 0 will be retried: ValueError: invalid literal for int()"
        )
        frames = re.findall(r"([^/]+)\.py:\d+ in (\w+)", line)
        assert {file for file, _ in frames} == {"test_handler_failures"}
        assert [name for _, name in frames][-1] == "price_of"
        assert "\n" not in line
    assert all(record.exc_info is None for record in caplog.records)
