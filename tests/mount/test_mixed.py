"""Stores of several formats in one tree: next to each other, within each other, and two documents in one directory."""

import json
import os
import shutil

import numpy as np
import pytest
import zarr

from support import data
from support.checks import check_array
from support.reading import by_zarr, disagreements, zarr_format

ZARR3 = data.stores("zarr3.tar.xz")
FLAVOURS = pytest.mark.parametrize("flavour", [(), ("--zarr", "2"), ("--zarr", "3")], ids=["as-it-is", "2", "3"])


def stores(corpus):
    """One store of each format, and the corpus that it is from."""
    return {"zarr2/tree.zarr": corpus, "n5/java.n5": corpus, "nczarr/head_lemon.zarr": corpus, "zarr3/tree.zarr": ZARR3, "zarr3/xarray.zarr": ZARR3}


def right(corpus, store, view, where):
    """How many arrays of a store that is shown at `where` were compared."""
    records = [r for r in corpus.records[store] if r.has_values and not r.undefined_region and not r.region]
    for record in records:
        assert not check_array(record, view / where / record.array), (where, record.id)
    return len(records)


def wkw(directory):
    """A dataset of WEBKNOSSOS with one cube of 8 by 8 by 8 voxels in blocks of 8, as its specification describes the file."""
    values = np.random.default_rng(5).integers(1, 255, (8, 8, 8)).astype("u1")  # x, y, z
    header = b"WKW\x01" + bytes([0x03, 1, 1, 1])
    (directory / "color/1/z0/y0").mkdir(parents=True)
    (directory / "color/1/header.wkw").write_bytes(header + bytes(8))
    (directory / "color/1/z0/y0/x0.wkw").write_bytes(header + (16).to_bytes(8, "little") + values.tobytes(order="F"))
    box = {"topLeft": [0, 0, 0], "width": 8, "height": 8, "depth": 8}
    layer = {"name": "color", "category": "color", "boundingBox": box, "dataFormat": "wkw", "elementClass": "uint8",
             "wkwResolutions": [{"resolution": 1, "cubeLength": 8}]}  # fmt: skip
    (directory / "datasource-properties.json").write_text(json.dumps({"id": {"name": "d", "team": "t"}, "dataLayers": [layer], "scale": [1, 1, 1]}))
    return values.T


@FLAVOURS
def test_formats_side_by_side(flavour, corpus, mount, room):
    for store, known in stores(corpus).items():
        shutil.copytree(known.path(store), room / "s" / "folder" / store.replace("/", "_"))
    voxels = wkw(room / "s" / "folder" / "wkw")
    (room / "s" / "README.txt").write_text("as it is")
    view = mount(room / "s", *flavour)
    for store, known in stores(corpus).items():
        if store == "n5/java.n5" and "3" in flavour:
            continue  # test_values compares N5 under --zarr 3
        assert right(known, store, view, "folder/" + store.replace("/", "_"))
    assert not disagreements(view / "folder/wkw/color/1", [voxels])
    assert (view / "README.txt").read_text() == "as it is"
    versions = {name: zarr_format(view / "folder" / name) for name in ("zarr2_tree.zarr", "zarr3_tree.zarr", "wkw/color/1")}
    assert set(versions.values()) == ({int(flavour[1])} if flavour else {2, 3}), versions
    if not flavour:
        assert versions == {"zarr2_tree.zarr": 2, "zarr3_tree.zarr": 3, "wkw/color/1": 2}


@FLAVOURS
def test_stores_within_stores(flavour, corpus, mount, room):
    """Each in a group of the one before, and one in a plain directory within a store."""
    shutil.copytree(ZARR3.path("zarr3/tree.zarr"), room / "s")
    shutil.copytree(corpus.path("n5/rust.n5"), room / "s" / "alpha" / "inner.n5")
    shutil.copytree(corpus.path("zarr2/tree.zarr"), room / "s" / "alpha" / "inner.n5" / "deep.zarr")
    shutil.copytree(ZARR3.path("zarr3/xarray.zarr"), room / "s" / "alpha" / "inner.n5" / "deep.zarr" / "notes" / "x.zarr")
    voxels = wkw(room / "s" / "beside")
    view = mount(room / "s", *flavour)
    assert right(ZARR3, "zarr3/tree.zarr", view, "")
    assert right(corpus, "zarr2/tree.zarr", view, "alpha/inner.n5/deep.zarr")
    assert right(ZARR3, "zarr3/xarray.zarr", view, "alpha/inner.n5/deep.zarr/notes/x.zarr")
    assert right(corpus, "n5/rust.n5", view, "alpha/inner.n5")
    assert not disagreements(view / "beside/color/1", [voxels])


def both(directory):
    """An array in both versions of Zarr in one directory, of other values."""
    three = zarr.create_array(str(directory), shape=(7, 9), chunks=(4, 4), dtype="<u2", zarr_format=3, fill_value=3)
    third = np.arange(63, dtype="<u2").reshape(7, 9) + 1
    three[...] = third
    document = (directory / "zarr.json").read_bytes()
    os.remove(directory / "zarr.json")
    second = np.arange(20, dtype="<i4").reshape(4, 5) - 50
    zarr.create_array(str(directory), shape=(4, 5), chunks=(4, 4), dtype="<i4", zarr_format=2, fill_value=2)[...] = second
    (directory / "zarr.json").write_bytes(document)
    return third, second


@FLAVOURS
def test_both_documents_in_one_directory(flavour, mount, room):
    """Version 3 counts, as for zarr-python, and the log says so once."""
    third, _ = both(room / "s" / "a")
    view = mount(room / "s", *flavour)
    for _ in range(2):
        assert not disagreements(view / "a", [third])
    assert zarr_format(view / "a") == (2 if "2" in flavour else 3)
    names = set(os.listdir(view / "a"))
    assert (".zarray" in names) != ("zarr.json" in names)
    if zarr_format(view / "a") == 3:
        # The chunks of version 2 are files of nobody.
        assert {name for name in data.entries(view / "a") if name[0] == "c"} == {f"c/{y}/{x}" for y in range(2) for x in range(3)}
    lines = [line for line in view.text().splitlines() if " a: " in line]
    assert len(lines) == 1 and "zarr.json" in lines[0] and "Zarr v2" in lines[0], view.text()
    assert np.array_equal(by_zarr(room / "s" / "a"), third), "zarr-python decides as the mount does"


@FLAVOURS
@pytest.mark.parametrize("separator", [".", "/"])
@pytest.mark.parametrize("shards", [None, (4, 4)])
def test_chunks_of_the_other_version_are_not_the_array_s(separator, shards, flavour, mount, room):
    """In the names of version 2, chunks that version 3 does not have would be called as those that version 2 left."""
    where = room / "s" / "a"
    options = {"shape": (8, 8), "chunks": (2, 2), "dtype": "<u2", "compressors": None}
    keys = {"name": "default", "separator": separator}
    zarr.create_array(str(where), zarr_format=3, fill_value=3, shards=shards, chunk_key_encoding=keys, **options)[:2, :2] = 1
    document = (where / "zarr.json").read_bytes()
    os.remove(where / "zarr.json")
    zarr.create_array(str(where), zarr_format=2, fill_value=2, chunk_key_encoding={"name": "v2", "separator": separator}, **options)[...] = 7
    (where / "zarr.json").write_bytes(document)
    want = np.full((8, 8), 3, "<u2")
    want[:2, :2] = 1
    assert np.array_equal(by_zarr(where), want)
    for more in ([], ["--fill-missing"]):
        assert not disagreements(mount(room / "s", *flavour, *more) / "a", [want])


def test_the_version_that_is_asked_for_is_the_one_that_is_read(mount, room):
    third, second = both(room / "s" / "a")
    assert not disagreements(mount(room / "s", "--format", "zarr3") / "a", [third])
    assert not disagreements(mount(room / "s", "--format", "zarr2") / "a", [second])


def test_groups_in_both_versions(mount, room):
    """The children of a group do not depend on which of its documents counts."""
    root = zarr.create_group(str(room / "s"), zarr_format=3, attributes={"from": 3})
    root.create_array("three", shape=(4,), chunks=(2,), dtype="u1")[...] = [1, 2, 3, 4]
    document = (room / "s/zarr.json").read_bytes()
    os.remove(room / "s/zarr.json")
    root = zarr.create_group(str(room / "s"), zarr_format=2, attributes={"from": 2})
    root.create_array("two", shape=(4,), chunks=(2,), dtype="u1")[...] = [5, 6, 7, 8]
    (room / "s/zarr.json").write_bytes(document)
    view = mount(room / "s")
    assert json.loads((view / "zarr.json").read_text())["attributes"] == {"from": 3}
    assert not disagreements(view / "three", [np.array([1, 2, 3, 4], "u1")])
    assert not disagreements(view / "two", [np.array([5, 6, 7, 8], "u1")])


def test_a_document_of_version_3_that_cannot_be_read_is_not_passed_over(mount, room):
    """Version 2 next to it may be what is left of an older array: its values are not shown for the newer one's."""
    both(room / "s" / "a")
    (room / "s/a/zarr.json").write_text("{")
    view = mount(room / "s")
    with pytest.raises(OSError):
        (view / "a/zarr.json").read_bytes()
    with pytest.raises(OSError):
        (view / "a/.zarray").read_bytes()
    assert "a: zarr.json: " in view.text() or "a/zarr.json: " in view.text()
