"""What a mount costs in requests: each line of the tables of `docs/s3.md` is counted by the server."""

import json
import os
import zipfile
from collections import Counter

import numpy as np
import pytest
import zarr

from support import data
from support.reading import by_zarr
from support.s3 import fault, status
from test_s3 import double, put, small_array  # noqa: F401

TEXT = (data.ROOT / "docs" / "s3.md").read_text(encoding="utf-8")

class Costs:
    """Counts the requests of what is done, and finds what the table says of it."""

    def __init__(self, double):
        self.double = double

    def __call__(self, what, work):
        self.double.log.clear()
        result = work()
        counted = Counter({kind: number for kind, number in self.double.count().items() if number})
        assert counted == told(what), f"{what}: {self.double.log}"
        return result


def told(what):
    """The requests that the documentation names, such as `1 LIST, 2 GET`."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")]
    (cost,) = [cost for name, cost, *_ in rows if name == what]
    if cost == "none":
        return Counter()
    return Counter({kind: int(number) for number, kind in (part.split() for part in cost.split(", "))})


@pytest.fixture
def costs(double):
    return Costs(double)


def group(double, view_of="s3://b/g"):
    """Mounts a group, whose arrays are opened later: what waits for a mount lists its root."""
    double.put("g/.zgroup", b'{"zarr_format": 2}')
    return double.mount(view_of)


def read(view, name):
    return lambda: (view / name).read_bytes()


def test_an_array_whose_chunks_the_first_page_names(double, costs):
    _, files = small_array()
    put(double, "g/a", {name: content for name, content in files.items() if name != "3.3"})
    view = group(double)
    costs("open an array of Zarr v2: `.zarray`, `.zattrs`", lambda: os.stat(view / "a/.zarray"))
    costs("open it again; read its documents", read(view, "a/.zarray"))
    costs("list a directory of up to 1,000 names that was opened", lambda: os.listdir(view / "a"))
    costs("look up a chunk that the listing names", lambda: os.stat(view / "a/0.1"))
    costs("look up a chunk that the whole listing does not name", lambda: os.path.exists(view / "a/3.3"))
    costs("look up a chunk outside of the grid", lambda: os.path.exists(view / "a/4.0"))
    costs("read a chunk that is known to be there", read(view, "a/0.1"))
    costs("read it again", read(view, "a/0.1"))


def test_an_array_with_nested_chunks(double, costs):
    _, files = small_array((400, 400), (10, 10), "/")
    put(double, "g/a", {name: content for name, content in files.items() if name != "9/9"})
    view = group(double)
    os.stat(view / "a/.zarray")
    costs("look up a nested chunk that is there", lambda: os.stat(view / "a/30/1"))
    costs("look up a nested chunk that is absent", lambda: os.path.exists(view / "a/9/9"))
    costs("look it up again", lambda: os.path.exists(view / "a/9/9"))
    costs("read a nested chunk by its name alone", read(view, "a/33/2"))
    costs("list a directory of nested chunks", lambda: os.listdir(view / "a/20"))
    costs("read a chunk that is known to be there", read(view, "a/20/7"))


def test_a_listing_of_several_pages(double, costs):
    _, files = small_array((3500,), (1,))
    del files["3333"]
    put(double, "g/a", files)
    view = group(double)
    costs("open one whose directory has more than 1,000 names", lambda: os.stat(view / "a/.zarray"))
    costs("look up a chunk that comes after the first page", lambda: os.stat(view / "a/9"))
    costs("list a directory of 3,501 names whose first page is there", lambda: os.listdir(view / "a"))
    costs("look up a chunk that the whole listing does not name", lambda: os.path.exists(view / "a/3333"))


def version_3(path, **how):
    values = np.arange(1, 160 * 160 + 1, dtype="<i4").reshape(160, 160)
    values[:20, :20] = 0
    array = zarr.create_array(path, shape=values.shape, chunks=(10, 10), dtype="<i4", compressors=None, **how)
    array[:] = values
    return values


def test_an_array_of_shards(double, costs, room):
    values = version_3(room / "a", shards=(40, 40))
    double.upload("g/a", room / "a")
    del double.objects["g/a/c/3/3"]
    double.put("g/zarr.json", b'{"zarr_format": 3, "node_type": "group"}')
    view = double.mount("s3://b/g")

    def chunk(i, j):
        got = np.fromfile(view / f"a/c/{i}/{j}", "<i4").reshape(10, 10)
        assert (got == values[10 * i : 10 * i + 10, 10 * j : 10 * j + 10]).all()

    costs("open an array of Zarr v3: `zarr.json`", lambda: os.stat(view / "a/zarr.json"))
    costs("read the first chunk of a shard", lambda: chunk(5, 6))
    costs("read another chunk of that shard", lambda: chunk(7, 4))
    costs("look up an absent chunk of a shard that is there", lambda: os.path.exists(view / "a/c/0/0"))
    costs("look up another one of that shard", lambda: os.path.exists(view / "a/c/1/1"))
    costs("look up a chunk whose shard is absent", lambda: os.path.exists(view / "a/c/15/15"))
    costs("list an array whose shards lie in four directories", lambda: os.listdir(view / "a"))
    costs("list a directory of the chunks of four shards", lambda: os.listdir(view / "a/c/9"))
    costs("list another one of the same shards", lambda: os.listdir(view / "a/c/10"))


def test_listing_an_array_of_shards_does_not_walk(double, room):
    version_3(room / "a", shards=(20, 20))
    double.upload("g/a", room / "a")
    double.put("g/zarr.json", b'{"zarr_format": 3, "node_type": "group"}')
    view = double.mount("s3://b/g")
    os.stat(view / "a/zarr.json")
    double.log.clear()
    assert set(os.listdir(view / "a")) >= {"c", "zarr.json"}
    assert len(double.log) <= 3, double.log


def test_a_directory_of_shards_that_cannot_be_listed_is_no_absence(double, room):
    """The first directory holds none, so that the next ones are asked; one that comes after the first shard does not count."""
    version_3(room / "a", shards=(40, 40))
    double.upload("g/a", room / "a")
    for j in range(4):
        del double.objects[f"g/a/c/0/{j}"]
    double.put("g/a/c/0/notes", b"")
    double.put("g/zarr.json", b'{"zarr_format": 3, "node_type": "group"}')
    trouble = fault(status(403, "AccessDenied"), kinds="LIST", key="g/a/c/1/")
    double.faults.append(trouble)
    view = double.mount("s3://b/g")
    assert (view / "a/zarr.json").exists()
    with pytest.raises(PermissionError):
        os.listdir(view / "a")
    double.faults.remove(trouble)
    double.faults.append(fault(status(403, "AccessDenied"), kinds="LIST", key="g/a/c/2/"))
    assert "c" in os.listdir(view / "a")
    with pytest.raises(PermissionError):
        os.listdir(view / "a/c/5")
    for j in range(4):
        for i in range(4):
            double.objects.pop(f"g/a/c/{i}/{j}", None)
    double.faults.clear()
    assert "c" not in os.listdir(double.mount("s3://b/g") / "a")


def test_an_array_of_n5(double, costs):
    values = np.arange(160 * 160, dtype=">i4").reshape(160, 160)
    document = {"dimensions": [160, 160], "blockSize": [10, 10], "dataType": "int32", "compression": {"type": "raw"}}
    double.put("g/a/attributes.json", json.dumps(document).encode())
    double.put("g/attributes.json", b'{"n5": "2.5.1"}')
    head = b"\0\0\0\2\0\0\0\x0a\0\0\0\x0a"
    for i, j in np.ndindex(16, 16):
        double.put(f"g/a/{i}/{j}", head + values[10 * j : 10 * j + 10, 10 * i : 10 * i + 10].tobytes())
    view = double.mount("s3://b/g")
    costs("open an array of N5: `attributes.json`", lambda: os.stat(view / "a/.zarray"))

    def chunk():
        got = np.fromfile(view / "a/3/5", "<i4").reshape(10, 10)
        assert (got == values[30:40, 50:60]).all()

    costs("read a nested chunk by its name alone", chunk)
    costs("list an array of N5 whose blocks lie in 16 directories", lambda: os.listdir(view / "a"))
    costs("list the directories of its chunks then", lambda: os.listdir(view / "a/7"))


def test_an_archive(double, costs, room):
    values, files = small_array()
    with zipfile.ZipFile(room / "x.zip", "w") as archive:
        for name, content in sorted(files.items()):
            archive.writestr(name, content)
        # Too much for the end of the archive to be all of it.
        archive.writestr("other/data", os.urandom(9 << 20))
        for i in range(100):
            archive.writestr(f"other/{i}", b"x" * 100)
    double.put("x.zip", (room / "x.zip").read_bytes())
    view = costs("mount an archive with an array of Zarr v2", lambda: double.mount("s3://b/x.zip"))
    costs("list the directories of an archive, look up its chunks", lambda: [os.stat(view / name) for name in os.listdir(view / "")])
    costs("read an entry of an archive", read(view, "2.3"))
    assert (by_zarr(view / "") == values).all()


def test_consolidated_metadata(double, costs):
    values, files = small_array((10,), (10,))
    double.put_group("set", 1000, files)
    view = costs("mount a group with 1,000 arrays in `.zmetadata`, and list it", lambda: double.mount("s3://b/set"))
    costs("open one of its arrays", lambda: os.stat(view / "v17/.zarray"))
    costs("look up and read a chunk of an array in `.zmetadata`", lambda: zarr.open_array(view / "v17", mode="r")[:])
    assert values.any()


def test_reading_in_order_asks_for_each_chunk_once(double, costs):
    values, files = small_array()
    put(double, "g/a", files)
    view = group(double)
    os.stat(view / "a/.zarray")
    costs("read all of 16 chunks in order, some ahead", lambda: by_zarr(view / "a"))
    assert values.any()


def test_a_region_that_is_not_the_one_guessed(double, costs):
    _, files = small_array()
    put(double, "a", files)

    def away(request):
        elsewhere = "/eu-north-1/s3/" not in request.handler.headers.get("Authorization", "")
        if elsewhere:
            request.error(301, "PermanentRedirect", {"x-amz-bucket-region": "eu-north-1"})
        return elsewhere

    double.faults.append(away)
    plain = told("open an array of Zarr v2: `.zarray`, `.zattrs`")
    double.signed("s3://b/a")
    assert double.count() == plain + told("the first request of a mount, where the region is another than was thought")


def test_every_line_is_counted():
    with open(__file__, encoding="utf-8") as file:
        tests = file.read()
    table = TEXT[TEXT.index("## What it costs") : TEXT.index("## How fast")]
    lines = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| ")]
    names = [name for name in lines if name not in ("---", "opening and listing", "chunks")]
    assert len(names) > 30 and not [name for name in names if f'"{name}"' not in tests]
