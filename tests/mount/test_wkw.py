"""WEBKNOSSOS: cubes of every kind, datasets of every age, and downloaded annotations.

The stores are written by `wkw` and `webknossos`, the values are those that `wkw` reads; `tests/data/README.md` tells of both.
"""

import errno
import json
import os
import shutil
import struct
import zipfile

import numpy as np
import pytest
import zarr
from ome_zarr_models import v04, v05

from support.data import DATA, Corpus, entries, unpacked
from support.reading import READERS, View, attributes, by_tensorstore, by_zarr, difference, tensorstore_of

BOTH = pytest.mark.parametrize("version", ["2", "3"])
AXES = pytest.mark.parametrize("axes", ["c", "source"])

CORPUS = Corpus(unpacked(DATA / "wkw.tar.xz"))
CUBES = [name for name in sorted(CORPUS.stores) if not name.startswith("zip/annotation")]
BAD = json.loads((CORPUS.base / "bad" / "manifest.json").read_text())["cases"]


def shown_order(truth, axes):
    """Channel, x, y, z as the mount shows them: channels only where there are several."""
    truth = truth[0] if truth.shape[0] == 1 else truth
    return truth if axes == "source" else truth.T


def problems(record, directory, axes="c"):
    """What is wrong with an array; one may be larger than the truth, which ends with the bounding box of the writer."""
    found = []
    truth = record.load(record.truth)
    if record.other_format:  # Zarr within a dataset: as it is
        for got in (by_zarr(directory), np.asarray(tensorstore_of(directory).read().result())):
            found.append(difference(got[tuple(map(slice, truth.shape))], truth))
        return [f"{record.id}: {text}" for text in found if text]
    want = shown_order(truth, axes)
    if record.region:
        origin = record.region["origin"][1:]
        order = origin if axes == "source" else origin[::-1]
        where = tuple(slice(o, o + n) for o, n in zip(order, want.shape))
        zarray = zarr.open_array(str(directory), mode="r")
        parts = {"tensorstore": np.asarray(tensorstore_of(directory)[where].read().result()), "zarr-python": zarray[where]}
    else:
        view = View(directory)
        assert all(n >= m for n, m in zip(view.shape, want.shape)), f"{record.id}: {view.shape}, truth {want.shape}"
        if not record.bounding_box:
            assert view.shape == want.shape, f"{record.id}: {view.shape}, truth {want.shape}"
        assert view.order == ("F" if axes == "source" else "C")
        parts = {name: reader(directory)[tuple(map(slice, want.shape))] for name, reader in READERS.items()}
    return [f"{record.id}, {name}: {text}" for name, got in parts.items() if (text := difference(got, want))]


@BOTH
@AXES
@pytest.mark.parametrize("store", CUBES)
def test_values(store, version, axes, mount):
    view = mount(CORPUS.path(store), "--zarr", version, "--axes", axes)
    found = [text for record in CORPUS.records[store] for text in problems(record, view / record.array, axes)]
    assert not found, "\n".join(found[:20])


@AXES
@pytest.mark.parametrize("store", [n for n in CUBES if CORPUS.stores[n]["container"] == "dir" and n != "wkw/chunk_far"])
def test_blocks_of_cubes_that_are_there_are_shown_and_no_others(store, axes, mount):
    view = mount(CORPUS.path(store), "--axes", axes)
    filled = mount(CORPUS.path(store), "--axes", axes, "--fill-missing")
    for record in CORPUS.records[store]:
        if record.other_format:
            continue
        source, shown = CORPUS.path(store) / record.array, View(view / record.array)
        some = next(source.rglob("x*.wkw")).read_bytes()[:16]
        side = 1 << (some[4] >> 4)
        there, listed = set(), {e for e in entries(view / record.array) if not e.startswith((".z", "zarr"))}
        for index in np.ndindex(*map(len, shown.grid)):
            x, y, z = (index if axes == "source" else index[::-1])[-3:]
            path = source / f"z{z // side}" / f"y{y // side}" / f"x{x // side}.wkw"
            assert os.path.exists(shown.path(index)) == path.exists(), f"{record.id} {index}"
            if path.exists():
                there.add("/".join(map(str, index)))
            assert os.stat(View(filled / record.array).path(index)).st_size == shown.chunk_bytes
        assert listed == there
        assert not problems(record, filled / record.array, axes)


def test_a_far_cube(mount):
    """The array begins at the dataset's zero, and only what is there is listed."""
    (record,) = CORPUS.records["wkw/chunk_far"]
    view = mount(CORPUS.path(record.store))
    found = [tuple(map(int, e.split("/"))) for e in entries(view.where) if not e.startswith(".")]
    (cube,) = CORPUS.path(record.store).rglob("x*.wkw")
    side = 1 << (cube.read_bytes()[4] >> 4)
    assert {tuple(i // side for i in index) for index in found} == {tuple(int(p.split(".")[0][1:]) for p in cube.parts[-3:])}
    assert len(found) == side**3 and all(View(view.where).chunk(index).shape == (8, 8, 8) for index in found)


def test_a_block_tells_where_it_lies(mount):
    """The jump table, read with struct, against the extended attributes."""
    store = "wkw/every_lz4_uint32_1ch_b4_f2"
    view = mount(CORPUS.path(store))
    cube = (CORPUS.path(store) / "z1/y1/x0.wkw").read_bytes()
    ends = struct.unpack("<9Q", cube[8:80])
    # Morton order of (x, y, z) = (1, 0, 1) in the cube.
    path = view / "3" / "2" / "1"
    told = {name: os.getxattr(path, name).decode() for name in os.listxattr(path)}
    assert "z1/y1/x0.wkw" in told["user.chunkmount.source"]
    assert f"{ends[5]}-{ends[6]}" in told["user.chunkmount.source"]
    assert told["user.chunkmount.dtype"] == "<u4" and told["user.chunkmount.shape"] == "[4, 4, 4]"


@pytest.mark.parametrize("store, side", [("wkw/many_blocks", 16), ("wkw/every_raw_uint8_1ch_b1_f8", 8)])
def test_the_jump_table_is_read_once(store, side, mount):
    view = mount(CORPUS.path(store))
    shown = View(view.where)
    stored = shown.stored()
    chosen = [stored[i] for i in (0, 77, 300, 41, 222)]
    before = view.stats()["store"]
    for index in chosen:
        shown.chunk(index)
    after = view.stats()["store"]
    cubes = {tuple(i // side for i in index) for index in chosen}
    assert after["get"] - before["get"] <= len(chosen) + len(cubes)
    assert after["list"] == before["list"]


@BOTH
@pytest.mark.parametrize("kind", ["stored", "deflated"])
def test_a_downloaded_annotation(kind, version, mount):
    store = f"zip/annotation_{kind}.zip"
    view = mount(CORPUS.path(store), "--zarr", version)
    assert {"annotation.nml", "notes.zip"} <= set(os.listdir(view.where))
    assert (view / "annotation.nml").read_bytes().startswith(b"<?xml") and (view / "notes.zip").read_bytes() == b"no archive at all"
    found = [text for record in CORPUS.records[store] for text in problems(record, view / record.array)]
    assert not found, "\n".join(found)
    inner = view / "data_Volume.zip" / "1"
    # Two of three buckets lie in one row; a bucket that was taken back is none.
    assert {e for e in entries(inner) if not e.startswith((".z", "zarr"))} == {"5/4/3", "5/5/3", "6/4/4"}
    assert not (inner / "9/9/9").exists()


def test_the_source_of_an_annotation_is_untouched(mount):
    store = "zip/annotation_deflated.zip"
    view = mount(CORPUS.path(store))
    with zipfile.ZipFile(CORPUS.path(store)) as outer:
        source = view / ".chunkmount" / "source"
        assert (source / "annotation.nml").read_bytes() == outer.read("annotation.nml")
        with outer.open("data_Volume.zip") as data, zipfile.ZipFile(data) as inner:
            for name in inner.namelist():
                assert (source / "data_Volume.zip" / name).read_bytes() == inner.read(name)


@pytest.mark.parametrize("outer", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_archives_in_archives_are_files(outer, room, mount):
    store = CORPUS.path("zip/annotation_stored.zip")
    with zipfile.ZipFile(store) as archive:
        data = archive.read("data_Volume.zip")
    cases = {"cut.zip": data[:-40], "headless.zip": data[: len(data) // 2], "empty.zip": b"", "UPPER.ZIP": data, "other.bin": data}
    with zipfile.ZipFile(room / "a.zip", "w", outer) as archive:
        for name, content in cases.items():
            archive.writestr(name, content)
    view = mount(room / "a.zip")
    assert set(os.listdir(view.where)) - {".zgroup"} == set(cases)
    for name, content in cases.items():
        if name == "UPPER.ZIP":
            assert (view / name).is_dir() and View(view / name / "1").stored()
        else:
            assert (view / name).read_bytes() == content


def test_a_deflated_archive_whose_checksum_is_wrong_is_an_error_and_not_empty(room, mount):
    shutil.copy(CORPUS.path("zip/annotation_deflated.zip"), room / "a.zip")
    with zipfile.ZipFile(room / "a.zip") as archive:
        info = archive.getinfo("data_Volume.zip")
    content = bytearray((room / "a.zip").read_bytes())
    at = info.header_offset + 30 + len(info.filename) + info.compress_size // 2
    content[at : at + 4] = bytes(b ^ 0xFF for b in content[at : at + 4])
    (room / "a.zip").write_bytes(content)
    view = mount(room / "a.zip")
    with pytest.raises(OSError):
        if (view / "data_Volume.zip").is_dir():
            os.listdir(view / "data_Volume.zip" / "1")
        else:
            (view / "data_Volume.zip").read_bytes()
    assert (view / "annotation.nml").read_bytes()


def image(directory):
    group = zarr.open_group(str(directory), mode="r")
    if group.metadata.zarr_format == 2:
        found = v04.Image.from_zarr(group)
        return found.attributes.multiscales[0]
    return v05.Image.from_zarr(group).ome_attributes.multiscales[0]


@BOTH
@AXES
@pytest.mark.parametrize("store", ["wkw/dataset", "wkw/dataset_old"])
@pytest.mark.parametrize("layer", ["em", "segmentation"])
def test_layers_are_scale_pyramids(store, layer, version, axes, mount):
    view = mount(CORPUS.path(store), "--zarr", version, "--axes", axes)
    found = image(view / layer)
    turn = (lambda l: l) if axes == "source" else (lambda l: l[::-1])
    assert [(a.name, a.type, a.unit) for a in found.axes] == turn([(n, "space", "nanometer") for n in "xyz"])
    assert found.name == layer and [d.path for d in found.datasets] == ["1", "2-2-1"]
    shown = [[list(getattr(t, t.type)) for t in level.coordinateTransformations] for level in found.datasets]
    want = [[[11.24, 11.24, 28.0], [0, 0, 0]], [[22.48, 22.48, 28.0], [5.62, 5.62, 0]]]
    np.testing.assert_allclose(shown, [[turn(numbers) for numbers in level] for level in want])
    if version == "3":
        names = json.loads((view / layer / "1" / "zarr.json").read_text())["dimension_names"]
        assert names == [a.name for a in found.axes]


@BOTH
def test_positions_are_those_of_the_dataset(version, room, mount):
    """Elements that hold the position of their own centre, at both magnifications and with a box that begins elsewhere."""
    store = room / "positions"
    shutil.copytree(CORPUS.path("wkw/dataset"), store)
    document = json.loads((store / "datasource-properties.json").read_text())
    spacing = np.array(document["scale"]["factor"])
    view = mount(store, "--zarr", version)
    for level in image(view / "em").datasets:
        scale, shift = (np.array(getattr(t, t.type)) for t in level.coordinateTransformations)
        mag = np.array([int(n) for n in (level.path.split("-") * 3)[:3]])
        # Voxel v of magnification m covers voxels m*v to m*v + m - 1 of the finest.
        first = np.array([(m * 5 + np.arange(m)).mean() for m in mag]) * spacing
        np.testing.assert_allclose((scale * 5 + shift)[::-1], first)


@BOTH
def test_channels_come_last_and_then_ome_zarr_has_no_words(version, mount):
    view = mount(CORPUS.path("wkw/dataset"), "--zarr", version)
    group = zarr.open_group(str(view / "color"), mode="r")
    assert not {"multiscales", "ome"} & set(group.attrs) and group.attrs["elementClass"] == "uint24"
    assert view.text().count("multiscales") <= 1
    view = mount(CORPUS.path("wkw/dataset"), "--zarr", version, "--axes", "source")
    found = image(view / "color")
    assert [(a.name, a.type) for a in found.axes] == [("c", "channel"), *((n, "space") for n in "xyz")]
    assert list(found.datasets[1].coordinateTransformations[0].scale) == [1, 22.48, 22.48, 28]


@BOTH
def test_attributes(version, mount):
    view = mount(CORPUS.path("wkw/dataset_old"), "--zarr", version)
    root = zarr.open_group(str(view.where), mode="r")
    source = json.loads((CORPUS.path("wkw/dataset_old") / "datasource-properties.json").read_text())
    assert root.attrs["scale"] == source["scale"] and root.attrs["id"] == source["id"]
    em = next(layer for layer in source["dataLayers"] if layer["name"] == "em")
    assert root["em"].attrs["boundingBox"] == em["boundingBox"] and root["em/2-2-1"].attrs["mag"] == [2, 2, 1]
    # It tells of nothing that is encoded, and tools of WEBKNOSSOS look for it.
    assert json.loads((view / "datasource-properties.json").read_text()) == source
    assert not (view / "em/1/header.wkw").exists() and "header.wkw" not in os.listdir(view / "em/1")
    assert not (view / "em/1/z0").exists()
    assert (view / ".chunkmount/source/em/1/header.wkw").read_bytes()[:3] == b"WKW"


@pytest.mark.parametrize(
    "unit, factor, name",
    [("micrometer", [0.5, 0.5, 2], "micrometer"), ("nm", [4, 4, 35], "nanometer"), ("angstrom", [40, 40, 350], "angstrom")],
)
def test_units(unit, factor, name, room, mount):
    shutil.copytree(CORPUS.path("wkw/dataset_old"), room / "a")
    path = room / "a" / "datasource-properties.json"
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"scale": {"factor": factor, "unit": unit}}))
    found = image(mount(room / "a") / "em")
    assert {axis.unit for axis in found.axes} == {name}
    assert list(found.datasets[0].coordinateTransformations[0].scale) == factor[::-1]


def test_notices(mount):
    for store, text in (
        ("wkw/no_header", "no header.wkw"),
        ("wkw/dataset_small_box", "outside of the bounding box"),
        ("wkw/dataset_moved", "lies outside of the dataset"),
    ):
        view = mount(CORPUS.path(store))
        for record in CORPUS.records[store]:
            os.listdir(view / record.array)
        assert text in view.text(), store


@pytest.mark.parametrize("first", [True, False])
def test_layers_that_share_their_files(first, room, mount):
    """Another layer has the same files in a smaller box; what is in either box is shown, and nothing is listed that cannot be read."""
    shutil.copytree(CORPUS.path("wkw/dataset"), room / "a")
    path = room / "a" / "datasource-properties.json"
    document = json.loads(path.read_text())
    em = next(layer for layer in document["dataLayers"] if layer["name"] == "em")
    small = {"topLeft": [0, 0, 0], "width": 2, "height": 2, "depth": 2}
    other = em | {"name": "part", "boundingBox": small, "mags": [m | {"path": f"./em/{m['path'].split('/')[-1]}"} for m in em["mags"]]}
    document["dataLayers"].insert(0 if first else len(document["dataLayers"]), other)
    path.write_text(json.dumps(document))
    alone, view = mount(CORPUS.path("wkw/dataset")), mount(room / "a")
    for record in CORPUS.records["wkw/dataset"]:
        assert not problems(record, view / record.array)
        assert entries(view / record.array) == entries(alone / record.array)
    assert attributes(view / "em/1") == attributes(alone / "em/1") and image(view / "em") == image(alone / "em")
    assert view.text().count("several layers or magnifications") == 2


def test_a_damaged_document_of_a_dataset_fails_alone(mount):
    view = mount(CORPUS.path("wkw/dataset_damaged"))
    with pytest.raises(OSError):
        (view / ".zattrs").read_bytes()
    assert (view / ".zgroup").exists()
    for record in CORPUS.records["wkw/dataset_damaged"]:
        assert not problems(record, view / record.array)


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["id"])
def test_broken_cubes(case, mount):
    """What is damaged is an error for every reader of it, and never zeros; the rest is right."""
    view = mount(CORPUS.base / "bad" / case["path"])
    for work in case["must_work"]:
        truth = shown_order(np.load(CORPUS.base / "bad" / work["truth"]), "c")
        directory = view / work["array"]
        shown = View(directory)
        holes = [
            tuple(slice(o, o + n) for o, n in zip(h["origin"][:0:-1], h["shape"][:0:-1])) for h in work.get("except_regions", [])
        ]
        failed = 0
        for index in np.ndindex(*map(len, shown.grid)):
            where = tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(index, shown.chunks, truth.shape))
            in_hole = any(all(h.start <= w.start < h.stop for h, w in zip(hole, where)) for hole in holes)
            want = truth[where]
            try:
                got = shown.chunk(index) if os.path.exists(shown.path(index)) else None
            except OSError as error:
                assert in_hole, f"{work['array']} {index}: {error}"
                failed += 1
                continue
            if got is None:
                assert case["id"] == "wkw_empty_file" or not (in_hole or want.any()), f"{work['array']} {index} is absent"
            elif not in_hole or case["id"] not in ("wkw_lz4_corrupt",):
                assert not difference(got[tuple(map(slice, want.shape))], want), f"{work['array']} {index}"
        assert failed or not holes or case["either"], work["array"]
    if case["id"] == "wkw_header_dims_0":
        for record_path in ("z0/y0/x0.wkw", "0/0/0"):
            with pytest.raises(OSError):
                (view / "broken" / record_path).read_bytes()


def copy_of(room, store="wkw/usual_blocks"):
    shutil.copytree(CORPUS.path(store), room / "a")
    return room / "a"


def test_a_cube_that_cannot_be_read_is_not_absent(room, mount):
    """A link that leads out of the source, a directory, and a file that is cut: errors, and the other cube is right."""
    store = copy_of(room, "wkw/every_lz4_uint32_1ch_b4_f2")
    (record,) = CORPUS.records["wkw/every_lz4_uint32_1ch_b4_f2"]
    truth = shown_order(record.load(record.truth), "c")
    cube = store / "z1/y1/x0.wkw"
    content = cube.read_bytes()
    for damage, code in (("link", errno.EACCES), ("directory", None), ("cut", errno.EIO), ("empty", errno.EIO), ("table", errno.EIO)):
        shutil.rmtree(cube) if cube.is_dir() else cube.unlink()
        if damage == "link":
            cube.symlink_to("/etc/hostname")
        elif damage == "directory":
            cube.mkdir()
        else:
            table = content[:72] + struct.pack("<Q", 3) + content[80:]
            cube.write_bytes({"cut": content[:40], "empty": b"", "table": table}[damage])
        view = mount(store)
        failed = 0
        for index in np.ndindex(2, 2, 2):
            try:
                (view / "/".join(str(i + o) for i, o in zip(index, (2, 2, 0)))).read_bytes()
            except OSError as error:
                assert error.errno != errno.ENOENT and code in (None, error.errno), (damage, error)
                failed += 1
        assert failed == (1 if damage == "table" else 8), damage
        for reader in (by_zarr, by_tensorstore):
            with pytest.raises(Exception):
                reader(view.where)
        first = tuple(slice(0, 4) for _ in range(3))
        assert not difference(View(view.where).chunk((0, 0, 0)), truth[first])


def test_headers_that_ask_for_too_much(room, mount):
    """2^15 blocks of 2^15 voxels along each side, and cubes that lie so far away that no reader counts them."""
    before = CORPUS.path("wkw/every_lz4_uint32_1ch_b4_f2")
    for name, dims in (("all", 0xFF), ("blocks", 0xF2), ("voxels", 0x1F)):
        shutil.copytree(before, room / name)
        for path in room.joinpath(name).rglob("*.wkw"):
            content = bytearray(path.read_bytes())
            content[4] = dims
            path.write_bytes(content)
        view = mount(room / name)
        for refused in (".zarray", "0/0/0"):
            with pytest.raises(OSError) as error:
                (view / refused).read_bytes()
            assert error.value.errno == errno.EFBIG, (name, refused)
        assert view.status("VmHWM") < 200_000
    store = copy_of(room, "wkw/every_lz4_uint32_1ch_b4_f2")
    os.rename(store / "z1", store / f"z{2**61}")
    view = mount(store)
    with pytest.raises(OSError):
        (view / ".zarray").read_bytes()


def test_refresh(room, mount):
    """A cube that is written anew, and one that was not there."""
    store = copy_of(room, "wkw/every_lz4_uint32_1ch_b4_f2")
    view = mount(store, "--refresh", "0")
    old = (view / "0/0/0").read_bytes()
    shutil.copy(store / "z1/y1/x0.wkw", store / "new")
    os.replace(store / "new", store / "z0/y0/x0.wkw")
    assert (view / "0/0/0").read_bytes() == (view / "2/2/0").read_bytes() != old
    assert not (view / "0/2/0").exists()
    (store / "z0/y1").mkdir()
    shutil.copy(store / "z1/y1/x0.wkw", store / "z0/y1/x0.wkw")
    assert (view / "0/2/0").read_bytes() == (view / "2/2/0").read_bytes()


def test_format_wkw_alone(mount):
    view = mount(CORPUS.path("wkw/dataset"), "--format", "wkw")
    assert not problems(CORPUS.records["wkw/dataset"][2], view / "em/1")
    assert attributes(view / "em/1")["mag"] == [1, 1, 1]


@pytest.mark.parametrize("target", ["data/img", "nothing"])
def test_a_link_that_is_called_as_a_directory_of_cubes_is(target, room, mount):
    """In a folder where there is nothing else of WKW, or a container of N5 without a document, it is a link like any other."""
    zarr.create_array(str(room / "s" / "plain" / "arr"), shape=(4,), chunks=(4,), dtype="u1", zarr_format=2)[...] = 7
    (room / "s" / "plain" / "data").mkdir()
    (room / "s" / "plain" / "data" / "img").write_text("pixels")
    (room / "s" / "plain" / "note").write_text("read me")
    (room / "s" / "plain" / "z0").symlink_to(target)
    view = mount(room / "s")
    assert (view / "plain" / "note").read_text() == "read me"
    assert (zarr.open_array(str(view / "plain" / "arr"), mode="r")[...] == 7).all()
    assert not view.text()
