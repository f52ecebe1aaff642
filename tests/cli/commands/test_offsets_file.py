"""Files of committed offsets: both formats, and each way in which an edited file is refused."""

import json
from pathlib import Path

import pytest

from rota.records import TopicPartition
from rota_cli.commands.offsets_file import (
    FILE_BYTES_MAX,
    format_offsets,
    parse_offsets,
    read_offsets,
    write_offsets,
)
from rota_cli.commands.reset_flags import CommandTargetFlags
from rota_cli.commands.reset_plan import ToOffsets
from rota_cli.errors import Failure, NotFound, WrongUsage

ORDERS_0, ORDERS_1 = (TopicPartition("orders", number) for number in (0, 1))
OFFSETS = {ORDERS_0: 12, ORDERS_1: 2**63 - 1}
# As Kafka's tool wrote it, with the line break that it prints at the end.
OF_ONE = "orders,0,12\norders,1,9223372036854775807\n\n"
OF_SEVERAL = "shop,orders,0,12\nother,orders,0,3\n"


def test_csv_of_one_group_has_no_group_and_of_several_has_it() -> None:
    found = {"shop": OFFSETS}
    assert format_offsets("o.csv", found, with_group=False) == OF_ONE.removesuffix("\n")
    assert format_offsets("o.csv", {"shop": {ORDERS_0: 12}}, with_group=True) == "shop,orders,0,12\n"


@pytest.mark.parametrize(
    ("topic", "written"),
    [
        ("a" * 24, "a" * 24),
        ("a" * 25, f'"{"a" * 25}"'),
        ("\U0001f600" * 12, "\U0001f600" * 12),
        ("\U0001f600" * 13, '"' + "\U0001f600" * 13 + '"'),
        ("a-b_c.d", "a-b_c.d"),
        ("a b", '"a b"'),
        ('a"b', '"a""b"'),
        ("a,b", '"a,b"'),
    ],
)
def test_text_is_quoted_when_jackson_would_and_is_read_again(topic: str, written: str) -> None:
    text = format_offsets("o.csv", {"g": {TopicPartition(topic, 0): 1}}, with_group=False)
    assert text == f"{written},0,1\n"
    assert parse_offsets("o.csv", text.encode()).by_group(["g"]) == {"g": {TopicPartition(topic, 0): 1}}


@pytest.mark.parametrize("name", ["o.csv", "o.txt", "o", "o.json", "O.JSON"])
@pytest.mark.parametrize("with_group", [True, False])
def test_a_file_is_read_as_it_was_written(name: str, with_group: bool) -> None:
    text = format_offsets(name, {"shop": OFFSETS}, with_group=with_group)
    assert parse_offsets(name, text.encode()).by_group(["shop"]) == {"shop": OFFSETS}


def test_json_has_one_object_on_each_line() -> None:
    text = format_offsets("o.json", {"shop": {ORDERS_0: 12, ORDERS_1: 3}}, with_group=True)
    assert text.splitlines()[1] == '{"group": "shop", "topic": "orders", "partition": 0, "offset": 12},'
    assert json.loads(text)[1]["offset"] == 3


def test_the_group_may_be_left_out_of_json_too() -> None:
    text = b'[{"topic": "orders", "partition": 0, "offset": 12}]'
    assert parse_offsets("o.json", text).by_group(["shop"]) == {"shop": {ORDERS_0: 12}}


@pytest.mark.parametrize("text", [f"\ufeff{OF_ONE}", OF_ONE.replace("\n", "\r\n"), f"\n{OF_ONE}\n \n"])
def test_what_editors_add_changes_nothing(text: str) -> None:
    assert parse_offsets("o.csv", text.encode()).by_group(["shop"]) == {"shop": OFFSETS}


def test_a_file_of_several_groups_is_read_for_those_named_or_for_all() -> None:
    file = parse_offsets("o.csv", OF_SEVERAL.encode())
    assert file.by_group(["shop", "other"]) == file.by_group([])
    assert file.by_group([]) == {"shop": {ORDERS_0: 12}, "other": {ORDERS_0: 3}}


@pytest.mark.parametrize(
    ("text", "named", "says"),
    [
        (OF_SEVERAL, ["shop"], "o.csv:2: these are offsets of group other: remove the line, or name this"),
        (OF_SEVERAL, ["shop", "other", "third"], "o.csv has no offsets of group third: add them, or omit"),
        (OF_ONE, ["shop", "other"], "o.csv:1: the group is missing: expected GROUP,TOPIC,PARTITION,OFFSET"),
        (OF_ONE, [], "o.csv:1: the group is missing"),
    ],
)
def test_offsets_of_another_group_are_refused(text: str, named: list[str], says: str) -> None:
    with pytest.raises(WrongUsage, match=f"^{says}"):
        parse_offsets("o.csv", text.encode()).by_group(named)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", " has no offsets: write it with `rota groups offsets GROUP --export o.csv`"),
        ("\n\n", " has no offsets: "),
        (
            "topic,partition,offset\norders,0,1\n",
            ':1: expected a partition number from 0 to [0-9]+, found "pa',
        ),
        (
            "orders,0,1\norders,1,ten\n",
            ':2: expected an offset from 0 to [0-9]+, found "ten": correct or rem',
        ),
        ("orders,0,-1\n", ":1: expected an offset .*, found .-1"),
        ("orders,0,9223372036854775808\n", ":1: expected an offset "),
        (f"orders,0,{'9' * 5000}\n", ':1: expected an offset .* found "9{39}…: correct'),
        ("orders,0,1_0\n", ":1: expected an offset "),
        ("orders,0,\u0663\n", ":1: expected an offset "),
        ("orders,0,\n", ':1: expected an offset .*, found ""'),
        (",0,1\n", ':1: expected a topic, found ""'),
        ("orders,0,1\n\norders,0,2\n", r":3: orders\[0\] is on line 1 already: correct or remove the line"),
        ("a,orders,0,1\nb,orders,0,1\na,orders,0,1\n", r":3: orders\[0\] is on line 1 already"),
        ("orders,0\n", ":1: expected TOPIC,PARTITION,OFFSET, without a header"),
        ("orders,0,1\nshop,orders,1,1\n", ":2: expected TOPIC,PARTITION,OFFSET, without"),
        ("shop,orders,0,1\norders,1,1\n", ":2: expected GROUP,TOPIC,PARTITION,OFFSET, without"),
        ("shop;orders;0;1\n", ":1: expected TOPIC,PARTITION,OFFSET"),
        ('orders,0,1\n"orders,1,1\norders",2,1\n', ":2: is not CSV "),
        ('"orders"x,0,1\n', ":1: is not CSV "),
    ],
)
def test_an_edited_csv_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(WrongUsage, match=rf"^o\.csv{says}"):
        parse_offsets("o.csv", text.encode())


ENTRY = '{"topic": "orders", "partition": 0, "offset": 1}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1: expected a list of objects such as "),
        ("{}", ":1: expected a list of objects such as "),
        ("[]", " has no offsets: "),
        ("[\n", ":2: is not JSON "),
        ("[\n1\n]", ":2: expected an object such as "),
        (f"[\n{ENTRY}\n", ":3: is not JSON .expected a comma"),
        (f"[\n{ENTRY}\n{ENTRY}]", ":3: is not JSON .expected a comma"),
        (f"[\n{ENTRY},\n]", ":3: is not JSON "),
        (f"[{ENTRY}] x", ":1: is not JSON .expected nothing after the list"),
        (f"[{ENTRY},{ENTRY}]", r":1: orders\[0\] is on line 1 already"),
        ('[\n{"topic": "orders", "partition": 0}]', ":2: expected an object such as "),
        ('[\n{"topic": "a", "topic": "b", "partition": 0, "offset": 1}]', ":2: .*field topic occurs twice"),
        (
            '[{"topic": "a", "partition": 0, "offset": 1, "metadata": ""}]',
            ":1: expected an object .*without o",
        ),
        ('[{"topic": "a", "partition": "0", "offset": 1}]', ':1: expected a partition .*, found "0"'),
        ('[{"topic": "a", "partition": 0, "offset": 1.0}]', ":1: expected an offset .*, found 1.0"),
        ('[{"topic": "a", "partition": 0, "offset": true}]', ":1: expected an offset .*, found true"),
        ('[{"topic": "a", "partition": 0, "offset": NaN}]', ":1: expected an offset .*, found NaN"),
        ('[{"topic": 1, "partition": 0, "offset": 1}]', ":1: expected a topic, found 1"),
        ('[{"topic": "a", "partition": 0, "offset": %s}]' % ("9" * 5000), ":1: is not JSON "),
        (f"[{'[' * 100_000}", ":1: is not JSON "),
        (f'[{ENTRY},\n{{"group": "shop", {ENTRY[1:]}]', ":2: expected a group on all lines, or on none"),
        ('[{"group": 1, "topic": "a", "partition": 0, "offset": 1}]', ":1: expected a group, found 1"),
    ],
)
def test_edited_json_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(WrongUsage, match=rf"^o\.json{says}"):
        parse_offsets("o.json", text.encode())


def test_text_in_another_encoding_is_refused_with_its_line() -> None:
    with pytest.raises(WrongUsage, match=r"^o\.csv:2: is not UTF-8: save the file as UTF-8"):
        parse_offsets("o.csv", b"orders,0,1\ncaf\xe9,0,1\n")


def test_partitions_that_do_not_exist_are_refused_with_their_line() -> None:
    file = parse_offsets("o.csv", b"orders,0,1\norders,7,1\n")
    file.check_partitions({"orders": 8})
    with pytest.raises(
        NotFound, match=r"^o\.csv:2: topic orders has no partition 7 \(it has 3\): correct or"
    ):
        file.check_partitions({"orders": 3})
    with pytest.raises(NotFound, match=r"^o\.csv:1: topic orders not found: correct or remove the line"):
        file.check_partitions({"returns": 3})


def test_files_that_cannot_be_read_or_written_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.csv does not exist: pass an existing file"):
        read_offsets(tmp_path / "none.csv")
    with pytest.raises(Failure, match=r"cannot read .* \(Is a directory\): pass a readable file"):
        read_offsets(tmp_path)
    with pytest.raises(Failure, match=r"cannot write .* \(No such file or directory\): pass another file"):
        write_offsets(tmp_path / "none" / "o.csv", OF_ONE)


def test_a_file_over_the_limit_is_not_read(tmp_path: Path) -> None:
    large = tmp_path / "large.csv"
    with large.open("wb") as opened:
        opened.truncate(FILE_BYTES_MAX + 1)
    with pytest.raises(WrongUsage, match=r"is larger than 128 MiB: split it"):
        read_offsets(large)


def test_an_existing_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "o.csv"
    for text in (OF_SEVERAL, OF_ONE):
        write_offsets(file, text)
        assert file.read_text() == text
    assert list(tmp_path.iterdir()) == [file]


def test_a_reset_from_a_file_needs_groups_and_no_other_target(tmp_path: Path) -> None:
    file = tmp_path / "o.csv"
    file.write_text(OF_SEVERAL)
    flags = CommandTargetFlags(from_file=file)
    assert flags.request(["other", "shop"], (), 0).targets == {
        "shop": ToOffsets({ORDERS_0: 12}),
        "other": ToOffsets({ORDERS_0: 3}),
    }
    assert set(CommandTargetFlags(from_file=file, all_groups=True).request([], (), 0).targets) == {
        "shop",
        "other",
    }
    with pytest.raises(WrongUsage, match="name at least one group, or pass --all-groups"):
        flags.request([], (), 0)
    with pytest.raises(WrongUsage, match=r"expected exactly one of .* or --from-file"):
        CommandTargetFlags(from_file=file, to_latest=True).request(["shop"], (), 0)
    with pytest.raises(WrongUsage, match="--all-groups requires --from-file"):
        CommandTargetFlags(to_latest=True, all_groups=True).request([], (), 0)
