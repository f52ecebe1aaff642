"""A node begins with the images of the store, and what it writes is its own."""

from pathlib import Path

from tests.support.cluster.runtime import LAYERS, STORE, copy_store


def test_databases_are_copied_files_of_images_are_shared_and_layers_are_empty_folders(tmp_path: Path) -> None:
    store, node = tmp_path / "store", tmp_path / "node"
    (store / "content" / "blobs").mkdir(parents=True)
    (store / "content" / "blobs" / "layer").write_text("layer")
    (store / "content" / "meta.db").write_text("as prepared")
    (store / LAYERS / "1" / "fs").mkdir(parents=True)

    copy_store(store, node)
    (node / STORE / "content" / "meta.db").write_text("changed by the node")

    assert (store / "content" / "meta.db").read_text() == "as prepared"
    assert (node / STORE / "content" / "blobs" / "layer").samefile(store / "content" / "blobs" / "layer")
    # The machine sees the store's own here.
    assert list((node / STORE / LAYERS / "1").iterdir()) == []
