"""The commands of a JSON member: what each line says, and what is wrong with those that say nothing."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_sidecar.core.member.config import Subscription
from rota_sidecar.core.member.partitions import Partition
from tests.support.json_member import commands
from tests.support.json_member.commands import Command, InvalidCommand, parsed

OFFSET = {"topic": "a", "partition": 1, "offset": 7}
FIELDS = ["id", "offsets", "partitions", "revocation", "topics", "pattern", "names", "rates", "within_ms"]
SCALAR = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()))
)
ANYTHING = SCALAR | st.lists(SCALAR, max_size=3) | st.lists(st.dictionaries(st.text(), SCALAR), max_size=2)


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode()


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        (
            {"command": "commit", "id": 1, "offsets": [OFFSET]},
            commands.Commit(1, [commands.AskedOffset(Partition("a", 1), 7, "", -1, None)]),
        ),
        (
            {
                "command": "commit",
                "offsets": [OFFSET | {"metadata": "é" * 4_096, "leader_epoch": 3, "tenure": 2}],
            },
            commands.Commit(None, [commands.AskedOffset(Partition("a", 1), 7, "é" * 4_096, 3, 2)]),
        ),
        ({"command": "fetch", "id": "x"}, commands.Fetch("x", None)),
        (
            {"command": "fetch", "partitions": [{"topic": "a", "partition": 0}]},
            commands.Fetch(None, [Partition("a", 0)]),
        ),
        ({"command": "revoked", "revocation": 3}, commands.Revoked(3)),
        ({"command": "subscribe", "topics": ["a", "b"]}, commands.Subscribe(Subscription(("a", "b")))),
        ({"command": "subscribe", "pattern": "a.*"}, commands.Subscribe(Subscription(pattern="a.*"))),
        ({"command": "assignors", "names": ["range"]}, commands.Offer(["range"])),
        (
            {"command": "rates", "rates": [{"topic": "a", "partition": 1, "rate": 2}]},
            commands.Rates({"a": {1: 2.0}}),
        ),
        ({"command": "join"}, commands.Join()),
        ({"command": "leave"}, commands.Leave(final=False, within_ms=None, leave_static=False)),
        (
            {"command": "stop", "within_ms": 5, "static": True},
            commands.Leave(final=True, within_ms=5, leave_static=True),
        ),
    ],
)
def test_each_command_is_read(fields: Mapping[str, object], command: Command) -> None:
    assert parsed(line(**fields)) == command


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"", "the line is no JSON"),
        (b"\xff", "the line is no JSON"),
        (b"[" * 100_000, "the line is no JSON"),
        (b"[]", "the line is no object"),
        (b"{}", "command of the line is missing, or not what it should be"),
        (line(command="commti"), "there is no command commti"),
        (line(command="join", now=True), "the line has no now"),
        (line(command="join", id=1.5), "id of the line is neither a text nor a number"),
        (line(command="commit"), "offsets of the line is missing"),
        (line(command="commit", offsets=[7]), "an offset is no object"),
        (line(command="commit", offsets=[{**OFFSET, "offset": -1}]), "offset of an offset is -1: give 0 to"),
        (line(command="commit", offsets=[{**OFFSET, "offset": True}]), "offset of an offset is missing"),
        (line(command="commit", offsets=[{**OFFSET, "offset": 2**63}]), "give 0 to 9223372036854775807"),
        (line(command="commit", offsets=[{**OFFSET, "metadata": "😀" * 2_049}]), "longer than 4096"),
        (line(command="commit", offsets=[{**OFFSET, "metadata": "\ud800"}]), "half a character"),
        (line(command="commit", offsets=[{**OFFSET, "epoch": 1}]), "an offset has no epoch"),
        (line(command="commit", offsets=[OFFSET] * 10_001), "has 10001 parts: give 10000 at most"),
        (line(command="commit", offsets=[{**OFFSET, "topic": "a b"}]), "invalid topic name 'a b'"),
        (line(command="subscribe"), "give either topics or pattern"),
        (line(command="subscribe", topics=["a"], pattern="a"), "give either topics or pattern"),
        (line(command="subscribe", topics=[]), "name at least one topic"),
        (line(command="subscribe", topics=[1]), "topics of the line is missing, or not"),
        (line(command="subscribe", pattern=""), "the pattern is empty"),
        (line(command="subscribe", pattern="a("), "expected a regular expression"),
        (line(command="rates", rates=[{"topic": "a", "partition": 1, "rate": -1}]), "no rate"),
        (b'{"command": "rates", "rates": [{"topic": "a", "partition": 1, "rate": NaN}]}', "no rate"),
        (line(command="revoked"), "revocation of the line is missing"),
        (line(command="leave", static="yes"), "static of the line is missing, or not what it should be"),
    ],
)
def test_an_invalid_line_is_refused_with_a_message(bad: bytes, message: str) -> None:
    with pytest.raises(InvalidCommand) as refused:
        parsed(bad)
    assert message in str(refused.value)


def test_the_answer_to_a_bad_line_names_its_id() -> None:
    with pytest.raises(InvalidCommand) as refused:
        parsed(line(command="commit", id="mine", offsets=[{}]))
    assert refused.value.asked == "mine"


@given(
    name=st.sampled_from(sorted(commands.READERS)), fields=st.dictionaries(st.sampled_from(FIELDS), ANYTHING)
)
def test_whatever_a_command_carries_is_read_or_refused(name: str, fields: dict[str, object]) -> None:
    try:
        command = parsed(line(command=name, **fields))
    except InvalidCommand:
        return
    assert isinstance(command, Command)
