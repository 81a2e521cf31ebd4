"""Shards of Zarr v3, which are read in parts, and grids whose last chunks or shards are shorter."""

import errno
import os
import shutil
import warnings

import numpy as np
import pytest
import zarr

from support import data
from support.reading import by_zarr, disagreements
from support.zarr3 import BYTES, FLAVOURS, GZIP, document, numbers, place, refused, shard, write


@pytest.fixture(autouse=True)
def quiet():
    """zarr-python warns of every type that no specification has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("where", ["start", "end"])
@pytest.mark.parametrize("inner", [[BYTES], [BYTES, GZIP]], ids=["plain", "gzip"])
def test_a_shard_is_read_in_parts_and_its_index_once(where, inner, mount, room):
    side, part = 64, 8
    source = place(room / "s", document([side, side, 2 * side], [side] * 3, codecs=[shard([part] * 3, inner, index_location=where)]))
    given = numbers((side, side, 2 * side))
    write(source, given)
    sizes = [os.stat(source / "c/0/0" / name).st_size for name in "01"]
    index = 16 * (side // part) ** 3 + 4
    view = mount(source)
    (view / "zarr.json").read_bytes()

    def cost(names):
        before = view.stats()["store"]
        for name in names:
            got = np.fromfile(view / name, "<u2").reshape([part] * 3)
            z, y, x = (int(n) * part for n in name.split("/")[1:])
            assert np.array_equal(got, given[z : z + part, y : y + part, x : x + part])
        after = view.stats()["store"]
        return [after[kind] - before[kind] for kind in ("get", "bytes")]

    requests, read = cost(["c/3/0/5"])
    assert requests == 2 and index < read <= index + 2 * part**3 + 64
    assert read < sizes[0] / 20
    requests, more = cost(["c/7/0/0", "c/0/6/1", "c/0/1/7"])
    assert requests == 3 and more <= 3 * (2 * part**3 + 64)
    # The other shard has an index of its own.
    requests, read = cost(["c/0/0/8", "c/1/1/15"])
    assert requests == 3 and index < read <= index + 2 * (2 * part**3 + 64)
    # Listing and looking at sizes costs no more than the indexes that are known.
    before = view.stats()["store"]["bytes"]
    assert sum(os.stat(path).st_size for path in (view / "c/2/2").iterdir()) == 2 * side // part * 2 * part**3
    assert view.stats()["store"]["bytes"] == before


def test_parts_that_are_not_there(mount, room):
    """A shard that the store does not have, and a part that its index leaves out, are absent; all else is there."""
    source = place(room / "s", document([8, 8], [4, 4], codecs=[shard([2, 2])], fill=9))
    given = np.full((8, 8), 9, "<u2")
    given[0:2, 2:4], given[4:6, 0:2] = 1, 2
    write(source, given, np.s_[0:2, 2:4])
    write(source, given, np.s_[4:6, 0:2])
    assert sorted(data.entries(source)) == ["c/0/0", "c/1/0", "zarr.json"]
    view = mount(source)
    assert sorted(data.entries(view.where)) == ["c/0/1", "c/2/0", "zarr.json"]
    for name in ("c/0/0", "c/1/1", "c/3/3", "c/0/2"):
        with pytest.raises(FileNotFoundError):
            (view / name).read_bytes()
    for options in ([], ["--fill-missing"], ["--zarr", "2"]):
        assert not disagreements(mount(source, *options).where, [given])


def test_an_index_that_lies_is_no_absence(mount, room):
    """Entries beyond the shard, an index whose sum is wrong, a shard that is shorter than its index, and one without a byte."""
    def good(name):
        source = place(room / "s" / name, document([8, 8], [4, 4], codecs=[shard([2, 2])], fill=9))
        write(source, numbers((8, 8)))
        return source / "c/0/0"

    given = numbers((8, 8))
    sum_of = lambda index: index + crc(index).to_bytes(4, "little")  # noqa: E731
    whole = good("beyond").read_bytes()
    entry = lambda offset, length: np.array([offset, length], "<u8").tobytes()  # noqa: E731
    index = whole[-68:-4]
    for name, made in {
        "beyond": whole[:-68] + sum_of(entry(len(whole), 8) + index[16:]),
        "wraps": whole[:-68] + sum_of(entry(2**64 - 4, 8) + index[16:]),
        "half": whole[:-68] + sum_of(entry(2**64 - 1, 8) + index[16:]),
        "sum": whole[:-4] + bytes(4),
        "short": whole[-60:],
        "empty": b"",
    }.items():
        good(name).write_bytes(made)
    view = mount(room / "s")
    for name in ("beyond", "wraps", "half", "sum", "short", "empty"):
        with pytest.raises(OSError) as error:
            (view / name / "c/0/0").read_bytes()
        assert error.value.errno == errno.EIO, name
        assert f"{name}/c/0/0: " in view.text()
        alone = name in ("beyond", "wraps", "half")
        if alone:
            assert np.array_equal(np.fromfile(view / name / "c/0/1", "<u2").reshape(2, 2), given[0:2, 2:4])
        else:
            assert pytest.raises(OSError, (view / name / "c/0/1").read_bytes)
        assert np.array_equal(np.fromfile(view / name / "c/2/2", "<u2").reshape(2, 2), given[4:6, 4:6])


def crc(index):
    import crc32c

    return crc32c.crc32c(index)


def rectilinear(*edges):
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": list(edges)}}


def test_grids_of_unequal_chunks_are_refused_by_name(mount, room):
    for name, edges in {"lengths": [[4, 3, 2]], "longer": [[4, 5]], "runs": [[[4, 1], [3, 1], [4, 1]]], "two": [[4, 2, 2, 1]]}.items():
        place(room / "s" / name, document([9], [4]) | {"chunk_grid": rectilinear(*edges)})
    place(room / "s/hexagons", document([9], [4]) | {"chunk_grid": {"name": "hexagons"}})
    place(room / "s/shards", document([12], [4], codecs=[shard([2])]) | {"chunk_grid": rectilinear([2, 4, 6])})
    place(room / "s/kept", document([9], [4], codecs=[BYTES, {"name": "riddle"}]) | {"chunk_grid": rectilinear([4, 4, 1])})
    place(room / "s/equal", document([9], [4]) | {"chunk_grid": rectilinear([4, 4, 4, 7])})
    view = mount(room / "s")
    for name in ("lengths", "longer", "runs", "two"):
        refused(view / name / "zarr.json", view, "a rectilinear grid with chunks of different shapes")
    refused(view / "hexagons/zarr.json", view, '"hexagons"')
    refused(view / "shards/zarr.json", view, "a rectilinear grid with chunks of different shapes")
    refused(view / "kept/zarr.json", view, "a rectilinear grid with chunks in codecs that stay of different shapes")
    assert not disagreements(view / "equal", [np.zeros(9, "<u2")])


@pytest.mark.parametrize("codecs", [[BYTES], [{"name": "transpose", "configuration": {"order": [2, 0, 1]}}, {"name": "bytes", "configuration": {"endian": "big"}}, GZIP]])
@FLAVOURS
def test_the_last_chunks_of_a_grid_may_be_shorter(codecs, flavour, mount, room):
    """Each chunk is written as an array of its own shape, which is what a rectilinear grid means by it."""
    shape, edges = (9, 7, 6), ((4, 4, 2), (5, 2), (3, 3))
    values = numbers(shape, "int32")
    for i, j, k in [(0, 0, 0), (2, 0, 1), (1, 1, 0), (2, 1, 1)]:
        one = [axis[n] for axis, n in zip(edges, (i, j, k))]
        part = np.full(one, -1, "int32")
        inside = values[4 * i : 4 * i + one[0], 5 * j : 5 * j + one[1], 3 * k : 3 * k + one[2]]
        part[tuple(slice(n) for n in inside.shape)] = inside
        write(place(room / "one", document(one, one, "int32", codecs)), part)
        target = room / f"s/c/{i}/{j}/{k}"
        target.parent.mkdir(parents=True, exist_ok=True)
        (room / "one/c/0/0/0").rename(target)
    for i, j, k in np.ndindex(3, 2, 2):
        if (i, j, k) not in [(0, 0, 0), (2, 0, 1), (1, 1, 0), (2, 1, 1)]:
            values[4 * i : 4 * i + 4, 5 * j : 5 * j + 5, 3 * k : 3 * k + 3] = 7
    grid = rectilinear([[4, 2], 2], [5, 2, 8], 3)
    place(room / "s", document(shape, [1], "int32", codecs, fill=7) | {"chunk_grid": grid})
    view = mount(room / "s", *flavour)
    assert not disagreements(view.where, [values])
    assert np.fromfile(view / ("2/1/1" if "2" in flavour else "c/2/1/1"), "<i4").reshape(4, 5, 3)[:1, :2].tolist() == values[8:, 5:, 3:].tolist()


TURN = {"name": "transpose", "configuration": {"order": [1, 0]}}


@pytest.mark.parametrize(
    "codecs",
    [
        [shard([4, 3], [TURN, shard([3, 2], [BYTES, GZIP])], index_location="start")],
        [TURN, shard([3, 4], [TURN, BYTES, GZIP])],
        [shard([4, 3], [BYTES]), GZIP],
    ],
    ids=["nested", "transposed", "encoded"],
)
@FLAVOURS
def test_the_last_shards_of_a_grid_may_be_shorter(codecs, flavour, mount, room):
    """Each shard is written as an array of its own shape; its index has an entry for each of its own parts."""
    shape, edges = (19, 11), ((8, 8, 4), (6, 6))
    values = numbers(shape, "int16")
    for i, j in np.ndindex(3, 2):
        one = [axis[n] for axis, n in zip(edges, (i, j))]
        part = np.zeros(one, "int16")
        inside = values[8 * i : 8 * i + one[0], 6 * j : 6 * j + one[1]]
        part[tuple(slice(n) for n in inside.shape)] = inside
        if (i, j) == (2, 0):
            part[:2, :3] = values[16:18, :3] = 7
        place(room / "one", document(one, one, "int16", codecs, fill=7))
        if codecs[-1] is GZIP:
            # tensorstore refuses a shard that is encoded as a whole.
            zarr.open_array(room / "one", mode="r+")[...] = part
        else:
            write(room / "one", part)
        target = room / f"s/c/{i}/{j}"
        target.parent.mkdir(parents=True, exist_ok=True)
        (room / "one/c/0/0").rename(target)
    grid = rectilinear([[8, 2], 4], 6)
    place(room / "s", document(shape, [1], "int16", codecs, fill=7) | {"chunk_grid": grid})
    view = mount(room / "s", *flavour)
    assert not disagreements(view.where, [values])
    shutil.copytree(view.where, room / "copy")
    assert np.array_equal(by_zarr(room / "copy"), values)


def test_a_shard_that_is_a_bomb(mount, room):
    """A shard that is compressed as a whole cannot grow to more than its chunks can have."""
    import gzip

    source = place(room / "s", document([8, 8], [4, 4], codecs=[shard([2, 2]), GZIP], fill=9))
    zarr.open_array(str(source), mode="r+")[...] = numbers((8, 8))
    (source / "c/0/0").write_bytes(gzip.compress(bytes(900 << 20), 1))
    view = mount(source)
    with pytest.raises(OSError) as error:
        (view / "c/0/0").read_bytes()
    assert error.value.errno in (errno.EIO, errno.EFBIG)
    assert view.status("VmHWM") < 100 << 10
    assert np.array_equal(np.fromfile(view / "c/2/2", "<u2").reshape(2, 2), numbers((8, 8))[4:6, 4:6])
