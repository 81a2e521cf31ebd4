"""What is rare in N5: texts, blocks of variable length, objects, label multisets, and the codecs and shards of N5 4.0.

The values are those of the writers and of third-party readers; `tests/data/README.md` names them.
"""

import gzip
import json
import os

import numpy as np
import pytest
import zarr
from zarr.errors import UnknownCodecError

from support.data import DATA, entries, unpacked
from support.reading import attributes, disagreements

BOTH = pytest.mark.parametrize("version", ["2", "3"])
AXES = pytest.mark.parametrize("axes", ["c", "source"])


def rare():
    return unpacked(DATA / "n5.tar.xz")


def truth(store):
    arrays = json.loads((rare() / "truth.json").read_text())[store]
    return {name: (told["shape"], told["values"]) for name, told in arrays.items()}


def values(told, dtype, axes):
    shape, items = told
    array = np.array(items, dtype).reshape(shape)
    return array.T if axes == "source" else array


def refused_by_zarr(where, version, encoding):
    """zarr-python knows no such array: by its type in version 2, where only the filter names the encoding, by its codec in version 3."""
    if version == "2":
        assert [codec["id"] for codec in json.loads((where / ".zarray").read_text())["filters"]] == [encoding]
    error, reason = {"2": (ValueError, r"'\|O', 'object_codec_id': None"), "3": (UnknownCodecError, f"'{encoding}'")}[version]
    with pytest.raises(error, match=reason):
        zarr.open_array(str(where), mode="r", zarr_format=int(version))[...]


def decoded(block, compression):
    """What a block of variable length and three axes holds, and the shape that its header says, by the specification of N5."""
    assert block[:4] == b"\0\1\0\3"
    content = {"raw": bytes, "gzip": gzip.decompress}[compression](block[20:])
    assert len(content) == int.from_bytes(block[16:20], "big")
    return content, np.frombuffer(block[4:16], ">u4")


def record_of(corpus, store, name):
    return next(r for r in corpus.records[store] if r.array == name)


@BOTH
@AXES
def test_texts_of_java(version, axes, corpus, mount):
    record = record_of(corpus, "n5/java.n5", "joint/strings")
    texts = np.array(record.strings_F_order, object).reshape(record.shape, order="F")
    view = mount(corpus.path(record.store), "--zarr", version, "--axes", axes)
    shown = zarr.open_array(str(view / record.array), mode="r", zarr_format=int(version))[...]
    assert np.array_equal(shown.astype(object), texts if axes == "source" else texts.T)
    # The chunk at the far corner holds one text; the rest of it is empty.
    assert (view / record.array / "1/1").read_bytes() == b"\6\0\0\0\x09\0\0\0lemon\xc3\xa9\xc3\xa9" + b"\0" * 20


@BOTH
@AXES
@pytest.mark.parametrize("store, name", [("n5/java.n5", "joint/varlen"), ("n5/z5py.n5", "echo/varlen")])
def test_blocks_of_variable_length_are_their_payload(store, name, version, axes, corpus, mount):
    record = record_of(corpus, store, name)
    view = mount(corpus.path(store), "--zarr", version, "--axes", axes)
    dtype = np.dtype(record.dtype)
    seen = set()
    for index, payload in record.varlength_chunks.items():  # by the position in N5's grid
        path = "/".join(index.split("/")[:: -1 if axes == "c" else 1])
        numbers = np.frombuffer(bytes.fromhex(payload), dtype.newbyteorder(">"))
        assert (view / name / path).read_bytes() == numbers.astype(dtype.newbyteorder("<")).tobytes(), index
        assert os.stat(view / name / path).st_size == numbers.nbytes
        seen.add(path)
    assert {e for e in entries(view / name) if not e.startswith((".z", "zarr"))} == seen
    blocks = attributes(view / name)["_n5_blocks"]
    assert blocks["mode"] == "varlength" and np.dtype(blocks["dtype"]) == dtype
    refused_by_zarr(view / name, version, "n5-varlength")


@BOTH
def test_an_object_is_its_bytes(version, corpus, mount):
    view = mount(corpus.path("n5/java.n5"), "--zarr", version)
    where = view / "joint/object"
    assert (where / "0/0").read_bytes() == b"opaque delta"
    assert attributes(where)["_n5_blocks"] == {"mode": "object"}
    refused_by_zarr(where, version, "n5-object")


@BOTH
@AXES
@pytest.mark.parametrize("name", ["data/s0", "data/s0-uncounted", "data/s1"])
def test_label_multisets_have_an_array_of_the_most_frequent_labels(name, version, axes, mount):
    want = values(truth("labels.n5")[name], "<u8", axes)
    view = mount(rare() / "labels.n5", "--zarr", version, "--axes", axes)
    labels = view / name / "most_frequent_label"
    assert not disagreements(labels, [want])
    shown = attributes(labels)
    assert shown["resolution"] == [4.0, 4.0, 40.0] and "isLabelMultiset" not in shown
    # The dataset's own files are the serialised multisets.
    assert attributes(view / name)["isLabelMultiset"] is True
    store = rare() / "labels.n5" / name
    document = json.loads((store / "attributes.json").read_text())
    blocks = [path for path in entries(store) if path != "attributes.json"]
    assert blocks
    for path in blocks:
        own, shape = decoded((store / path).read_bytes(), document["compression"]["type"])
        shown_as = "/".join(path.split("/")[:: -1 if axes == "c" else 1])
        assert (view / name / shown_as).read_bytes() == own, path
        # How many labels are at its head, which is as many as elements, or none.
        assert int.from_bytes(own[:4], "big") == (0 if "uncounted" in name else np.prod(shape)), path
        assert len((labels / shown_as).read_bytes()) == 8 * np.prod(document["blockSize"])
    firsts = {path.split("/")[-1 if axes == "c" else 0] for path in blocks}
    documents = {"2": {".zarray", ".zattrs"}, "3": {"zarr.json"}}[version]
    assert set(os.listdir(labels)) == documents | firsts
    assert set(os.listdir(view / name)) == documents | firsts | {"most_frequent_label"}
    refused_by_zarr(view / name, version, "n5-varlength")


@BOTH
def test_a_pyramid_of_label_multisets_is_one_of_labels(version, mount):
    view = mount(rare() / "labels.n5", "--zarr", version)
    shown = attributes(view / "data")
    (scales,) = (shown["ome"] if version == "3" else shown)["multiscales"]
    assert [level["path"] for level in scales["datasets"]] == ["s0/most_frequent_label", "s1/most_frequent_label"]
    group = zarr.open_group(str(view / "data"), mode="r", zarr_format=int(version))
    for level in scales["datasets"]:
        want = values(truth("labels.n5")[f"data/{level['path'].split('/')[0]}"], "<u8", "c")
        assert np.array_equal(group[level["path"]][...], want)


def test_a_name_that_the_source_has_is_the_source_s(room, mount):
    import shutil

    shutil.copytree(rare() / "labels.n5", room / "a.n5")
    (room / "a.n5/data/s0/most_frequent_label").mkdir()
    view = mount(room / "a.n5")
    assert os.listdir(view / "data/s0").count("most_frequent_label") == 1
    assert os.listdir(view / "data/s0/most_frequent_label") == [".zgroup"]


def test_fill_missing_and_refresh(mount):
    want = values(truth("labels.n5")["data/s0"], "<u8", "c")
    view = mount(rare() / "labels.n5", "--fill-missing", "--refresh", "0")
    labels = view / "data/s0/most_frequent_label"
    assert not disagreements(labels, [want])
    assert sum(not e.startswith(".z") for e in entries(labels)) == 2 * 3 * 2


@BOTH
@AXES
@pytest.mark.parametrize("name", ["unsharded", "end", "start", "headless", "headed-index", "nested"])
def test_codecs_and_shards(name, version, axes, mount):
    dtype = {"start": "<f8", "headless": "<u2"}.get(name, "<i4")
    want = values(truth("shards.n5")[name], dtype, axes)
    view = mount(rare() / "shards.n5", "--zarr", version, "--axes", axes)
    assert not disagreements(view / name, [want])
    assert attributes(view / name)["resolution"] == [4, 4, 40]
    assert not {"codecs", "blockSize"} & set(attributes(view / name))


@BOTH
@AXES
def test_texts_in_shards(version, axes, mount):
    want = values(truth("shards.n5")["texts"], object, axes)
    view = mount(rare() / "shards.n5", "--zarr", version, "--axes", axes)
    shown = zarr.open_array(str(view / "texts"), mode="r", zarr_format=int(version))[...]
    assert np.array_equal(shown.astype(object), want)


def test_a_block_of_another_kind_fails_alone(room, corpus, mount):
    """One block of variable length among whole ones, and one that holds an object."""
    import shutil

    store = room / "a.n5"
    shutil.copytree(rare() / "shards.n5/unsharded", store)
    document = json.loads((store / "attributes.json").read_text())
    document["compression"] = {"type": "raw"}
    del document["codecs"]
    (store / "attributes.json").write_text(json.dumps(document))
    shape = np.array([3, 2, 4], ">u4").tobytes()
    whole = b"\0\0\0\3" + shape + bytes(96)
    for path in entries(store):
        if path != "attributes.json":
            (store / path).write_bytes(whole)
    (store / "1/0/0").write_bytes(b"\0\1\0\3" + shape + b"\0\0\0\1" + bytes(4))
    (store / "1/1/0").write_bytes(b"\0\2\0\0\0\4" + bytes(4))
    view = mount(store)
    assert (view / "0/0/0").read_bytes() == bytes(96)
    for index in ("0/0/1", "0/1/1"):
        with pytest.raises(OSError):
            (view / index).read_bytes()
    text = view.text()
    assert "variable length" in text and "object" in text
