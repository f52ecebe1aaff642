"""Control groups are found wherever the machine has them, and made so that a kubelet may use them."""

from pathlib import Path

import pytest

from tests.support.cluster import cgroups

SEPARATE = """\
tmpfs {root} tmpfs rw 0 0
cgroup {root}/cpuset cgroup rw,cpuset 0 0
cgroup {root}/memory cgroup rw,memory 0 0
cgroup2 {root}/unified cgroup2 rw 0 0
proc /proc proc rw 0 0
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that look like the kernel's, for a machine with separate hierarchies and an empty common one."""
    root = tmp_path / "cgroup"
    for name in ("cpuset", "memory", "unified"):
        (root / name).mkdir(parents=True)
    (root / "cpuset" / "cpuset.cpus").write_text("0-1\n")
    (root / "cpuset" / "cpuset.mems").write_text("0\n")
    (root / "unified" / "cgroup.controllers").write_text("cpu memory\n")
    mounts = tmp_path / "mounts"
    mounts.write_text(SEPARATE.format(root=root))
    found = cgroups.hierarchies(mounts)
    monkeypatch.setattr(cgroups, "hierarchies", lambda: found)
    return root


def test_only_control_groups_are_hierarchies(root: Path) -> None:
    assert cgroups.hierarchies() == [root / "cpuset", root / "memory", root / "unified"]


def test_a_new_group_may_run_where_its_parent_may(root: Path) -> None:
    cgroups.create("rota/n1")
    assert (root / "cpuset" / "rota" / "n1" / "cpuset.cpus").read_text() == "0-1\n"
    assert (root / "cpuset" / "rota" / "n1" / "cpuset.mems").read_text() == "0\n"
    assert (root / "memory" / "rota" / "n1").is_dir()


def test_controllers_are_handed_down_where_one_hierarchy_has_them_all(root: Path) -> None:
    cgroups.create("rota")
    assert (root / "unified" / "cgroup.subtree_control").read_text() == "+cpu +memory"


def test_a_group_goes_with_all_below_it(root: Path) -> None:
    cgroups.create("rota/n1/kubepods")
    for leftover in (root / "cpuset").rglob("cpuset.*"):
        leftover.unlink()  # the kernel's files go with their folder
    cgroups.remove("rota")
    assert not list(root.glob("*/rota"))
