"""State files are read back unchanged, belong to one member, and never prevent a start."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota_proto.coordinator.v1 import coordinator_pb2 as pb
from rota_sidecar.core.member.identity import JoinMetadata, SavedMembership
from rota_sidecar.membership.state_file import BYTES_MAX, FILE, Owner, StateFile, StateFileError
from rota_sidecar.membership.state_file import _parsed as parsed
from rota_sidecar.membership.state_file import _Unusable as Unusable
from rota_sidecar.membership.state_file import _written as written

OWNER = Owner("orders", None)
LEADER = SavedMembership(
    "rota-1",
    7,
    "cooperative-sticky",
    leads=True,
    join_metadata=JoinMetadata(("a", "b"), ("range", "sticky")),
    group_topics=frozenset({"a", "b", "c"}),
)
SCALAR = st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=()), max_size=5)
JSON = SCALAR | st.lists(SCALAR, max_size=3) | st.dictionaries(st.text(max_size=5), SCALAR, max_size=3)


@pytest.fixture
def file(tmp_path: Path) -> StateFile:
    return StateFile(tmp_path / "state", OWNER)


@pytest.mark.parametrize("saved", [LEADER, SavedMembership("rota-2")])
def test_what_was_written_is_read_by_the_next_process(tmp_path: Path, saved: SavedMembership) -> None:
    first = StateFile(tmp_path, OWNER)
    assert first.read() == (None, "")
    first.write(SavedMembership("somebody-else"))
    first.write(saved)
    first.close()
    second = StateFile(tmp_path, OWNER)
    assert second.read() == (saved, "")
    second.remove()
    second.remove()
    assert second.read() == (None, "")


def test_a_static_member_without_a_name_takes_that_of_the_file(tmp_path: Path) -> None:
    named = StateFile(tmp_path, Owner("orders", "orders-3"))
    named.write(LEADER)
    named.close()
    next_one = StateFile(tmp_path, OWNER, adopts_instance=True)
    assert next_one.read() == (LEADER, "")
    assert next_one.instance_id == "orders-3"
    next_one.write(SavedMembership("rota-2"))
    next_one.close()
    assert StateFile(tmp_path, Owner("orders", "orders-3")).read() == (SavedMembership("rota-2"), "")


@pytest.mark.parametrize(
    ("owner", "reason"),
    [
        (Owner("bills", "bills-3"), "it belongs to another group or instance id"),
        (Owner("orders", "a b"), "its instance_id is not a valid name"),
    ],
)
def test_a_name_of_another_group_or_an_invalid_one_is_not_taken(
    tmp_path: Path, owner: Owner, reason: str
) -> None:
    other = StateFile(tmp_path, owner)
    other.write(LEADER)
    other.close()
    nameless = StateFile(tmp_path, OWNER, adopts_instance=True)
    saved, problem = nameless.read()
    assert saved is None
    assert reason in problem
    assert (tmp_path / f"{FILE}.aside").exists()


def test_only_this_user_may_read_it(tmp_path: Path, file: StateFile) -> None:
    before = os.umask(0)
    try:
        file.write(LEADER)
    finally:
        os.umask(before)
    folder = tmp_path / "state"
    assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {
        FILE: 0o600,
        "member.lock": 0o600,
    }
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_two_sidecars_cannot_share_a_folder(tmp_path: Path, file: StateFile) -> None:
    folder = tmp_path / "state"
    with pytest.raises(StateFileError, match=r"^--state-folder .*/state is in use by another sidecar: each "):
        StateFile(folder, OWNER)
    begin = "from rota_sidecar.membership.state_file import *; StateFile(Path(sys.argv[1]), Owner('orders', None))"
    done = subprocess.run([sys.executable, "-c", f"import sys; {begin}", folder], capture_output=True)
    assert b"is in use by another sidecar" in done.stderr
    file.close()
    StateFile(folder, OWNER).close()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "its version is not 1"),
        (written(LEADER, OWNER)[:-10], "it is not JSON"),
        (written(LEADER, OWNER).replace(b'"version": 1', b'"version": 2'), "version is not 1"),
        (written(LEADER, Owner("bills", None)), "belongs to another group"),
        (written(LEADER, Owner("orders", "orders-1")), "group or instance id"),
        (written(SavedMembership(""), OWNER), "its member_id is empty"),
        (written(LEADER, OWNER).replace(b": 7", b": true"), "its generation has the wrong type"),
        (written(LEADER, OWNER).replace(b'"c"', b"12"), "its of_group has the wrong type"),
        (b" " * (BYTES_MAX + 1), "it is larger than"),
    ],
)
def test_an_invalid_file_is_moved_aside_with_a_message(
    tmp_path: Path, file: StateFile, content: bytes, reason: str
) -> None:
    folder = tmp_path / "state"
    (folder / FILE).write_bytes(content)
    saved, problem = file.read()
    assert saved is None
    assert reason in problem
    assert problem.endswith(f"; the old content is in {FILE}.aside")
    assert (folder / f"{FILE}.aside").read_bytes() == content
    assert file.read() == (None, "")


def test_a_file_that_cannot_be_read_does_not_keep_the_member_from_joining(
    tmp_path: Path, file: StateFile
) -> None:
    folder = tmp_path / "state"
    (folder / FILE).mkdir()
    saved, problem = file.read()
    assert saved is None
    assert "is not a valid state file of this member (Is a directory)" in problem
    (folder / f"{FILE}.new").mkdir()
    with pytest.raises(StateFileError, match=rf"^{folder}/{FILE} cannot be written .Is a directory"):
        file.write(LEADER)
    (folder / FILE).mkdir()
    with pytest.raises(StateFileError, match="cannot be written"):
        file.remove()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StateFileError, match=r"^--state-folder .*/file/state cannot be used .Not a direc"):
        StateFile(tmp_path / "file" / "state", OWNER)


def test_a_crash_while_writing_leaves_what_was_there_before(tmp_path: Path, file: StateFile) -> None:
    file.write(LEADER)
    (tmp_path / "state" / f"{FILE}.new").write_bytes(b'{"half')
    assert file.read() == (LEADER, "")
    file.write(SavedMembership("rota-3"))
    assert file.read() == (SavedMembership("rota-3"), "")


@settings(max_examples=200)
@given(
    changed=st.dictionaries(
        st.sampled_from(["member_id", "generation", "strategy", "leads", "topics", "strategies", "of_group"]),
        JSON,
    )
)
def test_whatever_stands_in_the_file_is_read_or_refused(changed: dict[str, object]) -> None:
    content = json.dumps(json.loads(written(LEADER, OWNER)) | changed).encode()
    try:
        found = parsed(content, OWNER)
    except Unusable:
        return
    assert json.loads(written(found, OWNER)) == json.loads(content)
    pb.SyncGroupRequest(
        member_id=found.member_id, generation_id=found.generation, protocol_name=found.strategy
    )
