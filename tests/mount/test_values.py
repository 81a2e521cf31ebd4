"""Every array of every store, read through a mount by third-party readers, is the truth, bit for bit."""

import errno
import json
import os

import numpy as np
import pytest

from support import data
from support.checks import check_array, check_groups, check_objects, check_store, check_variable_length
from support.reading import View, difference

CORPUS = data.stores()
STORES = sorted(CORPUS.stores)
DIRECTORIES = [name for name in STORES if CORPUS.stores[name]["container"] == "dir"]
N5 = [name for name in DIRECTORIES if name.startswith("n5/")]

# Types of Zarr v2 that Zarr v3's core has too; others may be refused under `--zarr 3`, with a clear error.
CORE_V3 = {f"{order}{kind}" for order in "<>|" for kind in ("b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")}


def is_core(record):
    return isinstance(record.dtype, str) and record.dtype in CORE_V3


@pytest.mark.parametrize("store", STORES)
def test_values(store, corpus, mount):
    check_store(corpus, store, mount(corpus.path(store)))


@pytest.mark.parametrize("store", DIRECTORIES)
def test_a_chunk_is_shown_where_one_is_stored_and_nowhere_else(store, corpus, mount):
    view = mount(corpus.path(store))
    for record in corpus.records[store]:
        if not record.has_values or record.region:
            continue
        source, shown = corpus.path(store) / record.array, View(view / record.array)
        meta = source / ".zarray"
        stored = {"n5": True}.get(record.format) or json.loads(meta.read_text())
        for index in np.ndindex(*[len(axis) for axis in shown.grid]):
            if stored is True:
                name = "/".join(map(str, index[::-1]))
            else:
                name = stored.get("dimension_separator", ".").join(map(str, index)) or "0"
            there = (source / name).is_file()
            assert os.path.exists(shown.path(index)) == there, f"{record.id}: chunk {name}"


@pytest.mark.parametrize("store", STORES)
def test_attributes(store, corpus, mount):
    check_groups(corpus, store, mount(corpus.path(store)))


@pytest.mark.parametrize("store", DIRECTORIES)
def test_zarr_3(store, corpus, mount):
    view = mount(corpus.path(store), "--zarr", "3")
    problems, read = [], 0
    for record in corpus.records[store]:
        directory = view / record.array
        if not record.has_values or record.region:
            continue
        assert not (directory / ".zarray").exists(), "both flavours are shown"
        if not is_core(record):
            try:
                (directory / "zarr.json").read_bytes()
            except OSError as error:
                assert error.errno == errno.EOPNOTSUPP, record.id
                continue
        problems += [f"{record.id}: {text}" for text in check_array(record, directory)]
        read += 1
    assert not problems, "\n".join(problems)
    assert read or not any(is_core(record) and not record.region for record in corpus.records[store])


@pytest.mark.parametrize("store", N5)
def test_axes_as_in_the_source(store, corpus, mount):
    view = mount(corpus.path(store), "--axes", "source")
    problems = []
    for record in corpus.records[store]:
        if record.has_values and not record.region:
            assert len(record.shape) < 2 or View(view / record.array).order == "F", record.id
            problems += [f"{record.id}: {text}" for text in check_array(record, view / record.array, axes="source")]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("store", DIRECTORIES)
def test_missing_chunks_filled(store, corpus, mount):
    """With `--fill-missing` every chunk of the grid is a file, and the values are the same as without it."""
    records = [record for record in corpus.records[store] if record.has_values]
    view = mount(corpus.path(store), "--fill-missing")
    problems = []
    for record in records:
        directory = view / record.array
        problems += [f"{record.id}: {text}" for text in check_array(record, directory)]
        if record.region:
            continue
        shown = View(directory)
        for index in np.ndindex(*[len(axis) for axis in shown.grid]):
            if not os.path.exists(shown.path(index)):
                problems.append(f"{record.id}: no chunk {index}")
    assert not problems, "\n".join(problems[:20])


def test_a_chunk_of_a_huge_sparse_array(corpus, mount):
    """2^33 by 3 million by 70 thousand elements, of which one chunk is stored."""
    (record,) = corpus.records["n5/tensorstore_huge.n5"]
    view = mount(corpus.path(record.store))
    found = [name for name in data.entries(view / record.array) if not name.startswith(".")]
    origin = record.region["origin"]
    index = [o // c for o, c in zip(origin, record.chunks)][::-1]
    assert "/".join(map(str, index)) in found
    chunk = View(view / record.array).chunk(index)
    assert not difference(chunk, record.in_view(record.load(record.truth)))


def test_object_arrays_keep_their_encoding_and_lose_their_compressor(corpus, mount):
    """Objects have no plain bytes: what is shown decodes with the library that defines the encoding."""
    store = "zarr2/dtypes.zarr"
    view = mount(corpus.path(store))
    records = [r for r in corpus.records[store] if r.truth and r.truth.endswith(".json")]
    assert records
    for record in records:
        check_objects(record, view / record.array)


@pytest.mark.parametrize("store", ["n5/java.n5", "n5/z5py.n5"])
def test_n5_blocks_of_variable_length_are_never_wrong_numbers(store, corpus, mount):
    view = mount(corpus.path(store))
    records = [r for r in corpus.records[store] if not r.truth]
    assert records
    for record in records:
        check_variable_length(record, view / record.array)


def test_consolidated_metadata_tells_what_the_documents_tell(corpus, mount):
    """zarr-python opens the same hierarchy with consolidated metadata as without."""
    import zarr

    seen = 0
    for store in DIRECTORIES:
        for source in corpus.path(store).rglob(".zmetadata"):
            view = mount(corpus.path(store))
            directory = view / source.parent.relative_to(corpus.path(store))
            shown = json.loads((directory / ".zmetadata").read_text())
            for name, document in shown["metadata"].items():
                assert json.loads((directory / name).read_text()) == document, name
            assert set(shown["metadata"]) >= {
                name for name in json.loads(source.read_text())["metadata"] if (directory / name).exists()
            }
            group = zarr.open_consolidated(str(directory), zarr_format=2)
            assert group.metadata.consolidated_metadata is not None
            seen += 1
    assert seen


def test_both_trees_of_a_folder_of_stores(corpus, mount):
    """A directory that belongs to no format is a directory, and what lies in it is detected in turn."""
    view = mount(corpus.base)
    for store in ("n5/rust.n5", "zarr2/fills.zarr", "nczarr/head_lemon.zarr"):
        record = next(r for r in corpus.records[store] if r.has_values and not r.undefined_region)
        assert not check_array(record, view / store / record.array)
    assert (view / "manifest.json").read_bytes() == (corpus.base / "manifest.json").read_bytes()
