"""`--nczarr`: netcdf-c shows any source with named dimensions.

The wheel (NCZarr of today) and the distribution's ncdump (NCZarr of 4.9.0) are asked; what is expected follows from the
stores as other software wrote them, by the rules of the NCZarr specification.
"""

import base64
import json
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import tensorstore
import xarray
import zarr

from support import data
from support.reading import View, attributes, difference

CORPUS = data.stores()
READER = Path(__file__).parent / "support" / "read_netcdf.py"
HUGE = 1 << 24


def stores():
    for store, about in sorted(CORPUS.stores.items()):
        record = CORPUS.records[store][0]
        pure = record.format in ("n5", "zarr2") or store.startswith("nczarr/") and "pure" in store
        # A dataset that is an array has no group for netCDF to open.
        if about["container"] == "dir" and pure and not (len(CORPUS.records[store]) == 1 and not record.array):
            yield store


def netcdf(where, out, mode="nczarr,file"):
    run = subprocess.run([sys.executable, READER, f"file://{where}#mode={mode}", out], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, f"netcdf-c: status {run.returncode}\n{run.stderr[-2000:]}"
    return pickle.loads(Path(out).read_bytes())


def ncdump(where, *options):
    run = subprocess.run(["ncdump", *options, f"file://{where}#mode=nczarr,file"], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, f"ncdump: status {run.returncode} {run.stderr[-500:]}"
    return run.stdout


def shown(view):
    """Every array that the mount shows, by path, and by its own documents."""
    found = {}
    for document in sorted(view.where.rglob(".zarray")):
        path = str(document.parent.relative_to(view.where))
        try:
            found[path] = (json.loads(document.read_text()), attributes(document.parent))
        except OSError:
            found[path] = None
    return found


def is_netcdf(array):
    """Whether netCDF has the type, and the order, of an array."""
    if array is None:
        return False
    meta, _ = array
    plain = isinstance(meta["dtype"], str) and not meta["filters"] and not meta["compressor"]
    if not plain or (meta["order"] == "F" and len(meta["shape"]) > 1):
        return False
    dtype = np.dtype(meta["dtype"])
    if dtype.kind == "S":
        return meta["fill_value"] in (None, "") or dtype.itemsize == 1 and meta["dtype"][0] == ">"
    return dtype.kind in "iu" or dtype.kind == "f" and dtype.itemsize > 2


def dimensions(arrays, ome):
    """The names of the axes of each array: its own, or by OME-Zarr for those of a group, unless arrays of the same group disagree."""
    lengths = {}

    def own(path):
        meta, attrs = arrays[path]
        names = attrs.get("_ARRAY_DIMENSIONS") or ome.get(path.rpartition("/")[0]) or []
        names = names if len(names) == len(meta["shape"]) else [None] * len(meta["shape"])
        return list(zip(names, meta["shape"]))

    for path in arrays:
        for name, length in own(path):
            lengths.setdefault((path.rpartition("/")[0], name), set()).add(length)

    def name(path, name, length):
        agreed = name and len(lengths[path.rpartition("/")[0], name]) == 1
        return name if agreed else f"_Anonymous_Dim_{length}"

    scalar = lambda path: "scalar" in arrays[path][1]["_nczarr_array"]  # noqa: E731
    return {path: [] if scalar(path) else [name(path, *axis) for axis in own(path)] for path in arrays}


def ome_axes(view, arrays):
    """The names of axes by the OME-Zarr metadata of groups."""
    found = {}
    for group in {path.rpartition("/")[0] for path in arrays}:
        for image in attributes(view / group).get("multiscales", []):
            names = [axis if isinstance(axis, str) else axis["name"] for axis in image.get("axes", [])]
            found[group] = names
    return found


@pytest.mark.parametrize("store", list(stores()))
def test_netcdf_reads_any_store(store, corpus, mount, room):
    view = mount(corpus.path(store), "--nczarr")
    records = {record.array: record for record in corpus.records[store]}
    everything = shown(view)
    # Of an array that lies in an array netCDF knows nothing.
    inside = {path for path in everything if any(str(above) in everything for above in Path(path).parents)}
    legal = {path for path in everything if all(part[0].isalnum() or part[0] == "_" for part in Path(path).parts)}
    arrays = {path: array for path, array in everything.items() if is_netcdf(array) and path in legal - inside}
    huge = [path for path, (meta, _) in arrays.items() if np.prod(meta["shape"], dtype=object) > HUGE]
    if huge:
        names = [name for path in huge for name in dimensions(arrays, {})[path]]
        assert all(name in ncdump(view.where, "-h") for name in names)
        return
    found = netcdf(view.where, room / "found")
    problems = [f"{path} is not there" for path in arrays if path not in found["variables"]]
    problems += [f"{path} should not be there" for path in found["variables"] if path not in arrays]
    names = dimensions(arrays, ome_axes(view, arrays))
    compared = 0
    for path in arrays.keys() & found["variables"].keys():
        have, record = found["variables"][path], records.get(path)
        if have["dimensions"] != names[path]:
            problems.append(f"{path}: dimensions {have['dimensions']}, truth {names[path]}")
        if record is None or not record.has_values or record.undefined_region or record.region:
            continue
        values = np.asarray(have["values"])
        if have["dtype"] == "str":
            values = np.array([text.encode("utf-8", "surrogateescape") for text in values.ravel()]).reshape(values.shape)
        wrong = [difference(values, np.asarray(want, values.dtype) if have["dtype"] == "str" else want) for want in record.accepted()]
        if all(wrong):
            problems.append(f"{path}: {wrong[0]}")
        compared += 1
    assert not problems, "\n".join(problems[:40])
    assert compared or not any(record.has_values and is_netcdf(arrays.get(path)) for path, record in records.items())
    if the_distribution_reads(view / ".zattrs", room):
        header = ncdump(view.where, "-h")
        assert "netcdf mnt0 {" in header
        # What it reads is there, in a line of its own.
        listed = json.loads((view / ".zgroup").read_text())["_NCZARR_GROUP"]["vars"]
        assert all(f" {name}" in header.replace("\\", "") for name in listed)


def the_distribution_reads(attributes, room):
    """Whether netcdf-c 4.9.0 reads a group that has nothing but these attributes; many kinds of JSON stop it."""
    bare = room / "bare"
    bare.mkdir()
    marks = {"_NCZARR_SUPERBLOCK": {"version": "2.0.0"}, "_NCZARR_GROUP": {"dims": {}, "vars": [], "groups": []}}
    (bare / ".zgroup").write_text(json.dumps({"zarr_format": 2, **marks}))
    kept = {name: value for name, value in json.loads(attributes.read_text()).items() if "nczarr" not in name}
    (bare / ".zattrs").write_text(json.dumps(kept))
    return subprocess.run(["ncdump", "-h", f"file://{bare}#mode=nczarr,file"], capture_output=True, timeout=60).returncode == 0


@pytest.mark.parametrize("store", ["zarr2/tree.zarr", "n5/java.n5"])
def test_without_the_flag_nothing_is_invented(store, corpus, mount):
    view = mount(corpus.path(store))
    arrays = shown(view)
    broken = {view / path for path, array in arrays.items() if array is None}
    assert not any("nczarr" in json.dumps(array).lower() for array in arrays.values())
    for name in data.entries(view.where):
        if Path(name).name == ".zgroup" and (view / name).parent not in broken:
            assert "nczarr" not in (view / name).read_text().lower()


def written(group, name, shape, chunks, dtype="<i4", names=None, **options):
    array = group.create_array(name, shape=shape, chunks=chunks, dtype=dtype, dimension_names=None, **options)
    values = (np.arange(np.prod(shape, dtype=int)).reshape(shape) + 1).astype(dtype)
    array[...] = values
    if names:
        array.attrs["_ARRAY_DIMENSIONS"] = names
    return values


def hierarchy(room):
    """A dataset with everything that needs a decision."""
    root = zarr.create_group(str(room / "source"), zarr_format=2)
    values = {"v": written(root, "v", (4, 6), (2, 3), names=["y", "x"]), "w": written(root, "w", (6,), (6,), "<f8", ["x"])}
    values["two"] = written(root, "two", (4, 5), (4, 5), names=["y", "z"])
    values["three"] = written(root, "three", (7, 6), (7, 6), names=["z", "x"])
    values["bare"] = written(root, "bare", (4, 4), (2, 2))
    values["point"] = written(root, "point", (), (), names=None)
    inner = root.create_group("g one").create_group("deep")
    values["g one/deep/v"] = written(inner, "v", (9,), (20,), "<u2", ["y"])
    for name, dtype in (("complex", "<c8"), ("flags", "|b1"), ("half", "<f2"), ("when", "<M8[s]"), ("text", "<U3")):
        root.create_array(name, shape=(3,), chunks=(3,), dtype=dtype)
    written(root, "-illegal", (3,), (3,))
    root.attrs.update({"empty": [], "mixed": [1, "a"], "half": [1, 2.5], "large": [1, 5_000_000_000], "nothing": None, "u": "µ"})
    return values


def test_names_types_scalars_and_what_is_left_out(mount, room):
    values = hierarchy(room)
    view = mount(room / "source", "--nczarr")
    found = netcdf(view.where, room / "found")
    assert set(found["variables"]) == set(values)
    for path, want in values.items():
        assert not difference(np.asarray(found["variables"][path]["values"]), want), path
    names = {path: variable["dimensions"] for path, variable in found["variables"].items()}
    assert names == {
        "v": ["y", "x"],
        "w": ["x"],
        "two": ["y", "_Anonymous_Dim_5"],  # `z` is 5 here
        "three": ["_Anonymous_Dim_7", "x"],  # and 7 there
        "bare": ["_Anonymous_Dim_4"] * 2,
        "point": [],
        "g one/deep/v": ["y"],
    }
    lengths = {name: length for name, (length, unlimited) in found["dimensions"].items() if name != "_scalar_"}
    assert lengths == {"y": 4, "x": 6, "_Anonymous_Dim_4": 4, "_Anonymous_Dim_5": 5, "_Anonymous_Dim_7": 7, "g one/deep/y": 9}
    attrs = found["attributes"]
    assert (attrs["@empty"], attrs["@mixed"], attrs["@nothing"], attrs["@u"]) == ("[]", '[1,"a"]', "null", "µ")
    assert attrs["@half"].tolist() == [1, 2.5] and attrs["@large"].tolist() == [1, 5_000_000_000]
    log = view.text()
    for name in ("complex", "flags", "half", "when", "text", "-illegal"):
        assert log.count(f"{name}: not listed for netCDF") == 1, log
    # Zarr's own readers see all of it.
    group = zarr.open_group(str(view.where), mode="r", zarr_format=2)
    assert group["half"].dtype == np.float16 and group["point"][...].item() == 1
    for path, want in values.items():
        assert np.array_equal(group[path][...].reshape(want.shape), want), path


def test_the_distribution_prints_values_and_dimensions(mount, room):
    """netcdf-c 4.9.0 stops at attributes and chunks that newer releases read; what it can read is listed for it."""
    root = zarr.create_group(str(room / "source"), zarr_format=2)
    written(root, "v", (4, 6), (2, 3), names=["y", "x"])
    written(root, "wide", (4,), (9,), names=["y"])
    written(root, "point", (), ())
    written(root.create_group("g"), "w", (3,), (3,), "<f8", ["t"])
    root.create_array("none", shape=(0,), chunks=(1,), dtype="<i4")
    root.create_array("complex", shape=(3,), chunks=(3,), dtype="<c8")
    # It takes the first for a byte, the second for a short, and the third for an unsigned one.
    ranges = {"narrow": [0, 1000], "broad": [1000, -1], "unsigned": [40000, 1], "negative": [40000, -1], "far": [-40000, 40000]}
    for name, valid in ranges.items():
        written(root, name, (4,), (4,), names=["y"])
        root[name].attrs["valid_range"] = valid
    text = " ".join(ncdump(mount(room / "source", "--nczarr").where).split())
    for part in ("y = 4 ;", "x = 6 ;", "int v(y, x) ;", "int point(_scalar_) ;", "point = 1 ;", "double w(t) ;", "w = 1, 2, 3 ;"):
        assert part in text, text
    assert "v = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10," in text
    assert "int wide" not in text
    assert [name for name in ranges if f"int {name}(y) ;" in text] == ["broad", "unsigned", "far"]


def test_a_dataset_with_marks_keeps_them(corpus, mount, room):
    with_flag, without = mount(data.SAMPLE_ZIP, "--nczarr"), mount(data.SAMPLE_ZIP)
    for name in data.entries(without.where):
        if Path(name).name in (".zgroup", ".zarray", ".zattrs"):
            assert (with_flag / name).read_bytes() == (without / name).read_bytes(), name
    found = netcdf(with_flag.where, room / "found")
    assert found["dimensions"]["time"] == (5, True)


def test_arrays_without_a_group_get_one(mount, room):
    """tensorstore writes no groups."""
    spec = {"driver": "zarr", "kvstore": f"file://{room}/source/t", "create": True}
    array = tensorstore.open(spec, dtype=tensorstore.int16, shape=[5, 3], chunk_layout=tensorstore.ChunkLayout(chunk_shape=[2, 2]))
    want = np.arange(15, dtype="<i2").reshape(5, 3) + 1
    array.result().write(want).result()
    assert {file.name for file in (room / "source").iterdir()} == {"t"}
    found = netcdf(mount(room / "source", "--nczarr").where, room / "found")
    assert not difference(np.asarray(found["variables"]["t"]["values"]), want)
    assert not (mount(room / "source") / ".zgroup").exists()


def test_a_source_named_as_netcdf_does(mount, room):
    """`mode=nczarr` is NCZarr, `mode=zarr` pure Zarr, `noxarray` takes no names from _ARRAY_DIMENSIONS; none of them is N5."""
    root = zarr.create_group(str(room / "source"), zarr_format=2)
    written(root, "v", (4, 6), (2, 3), names=["y", "x"])
    url = f"file://{room}/source"
    found = netcdf(mount(url + "#mode=nczarr,file").where, room / "found")
    assert found["variables"]["v"]["dimensions"] == ["y", "x"]
    found = netcdf(mount(url + "#mode=nczarr,noxarray,file").where, room / "found")
    assert found["variables"]["v"]["dimensions"] == ["_Anonymous_Dim_4", "_Anonymous_Dim_6"]
    for mode in ("zarr,file", "xarray,file", "file"):
        assert "nczarr" not in (mount(f"{url}#mode={mode}") / ".zgroup").read_text().lower()
    (room / "n5").mkdir()
    (room / "n5" / "attributes.json").write_text('{"n5": "4.0.0"}')
    assert not (mount(f"file://{room}/n5#mode=zarr,file") / ".zgroup").exists()
    assert (mount(f"file://{room}/n5#mode=file") / ".zgroup").exists()


def test_consolidated_metadata_has_the_same_marks(mount, room):
    hierarchy(room)
    zarr.consolidate_metadata(str(room / "source"), zarr_format=2)
    view = mount(room / "source", "--nczarr")
    listed = json.loads((view / ".zmetadata").read_text())["metadata"]
    for key in (".zattrs", "v/.zattrs", "point/.zarray", "g one/deep/v/.zattrs"):
        assert listed[key] == json.loads((view / key).read_text()), key


def test_zarr_3_has_the_marks_of_the_specification(mount, room):
    """No released netcdf-c reads these."""
    values = hierarchy(room)
    view = mount(room / "source", "--nczarr", "--zarr", "3")
    root = json.loads((view / "zarr.json").read_text())["attributes"]
    assert root["_nczarr_superblock"] == {"version": "2.0.0"}
    assert {"name": "y", "size": 4, "unlimited": 0} in root["_nczarr_group"]["dimensions"]
    assert root["_nczarr_group"]["subgroups"] == ["g one"]
    types = {item["name"]: item["configuration"]["type"] for item in root["_nczarr_attrs"]["attribute_types"]}
    assert (types["half"], types["large"], types["u"], types["_nczarr_group"]) == ("float64", "int64", "char", "json")
    inner = json.loads((view / "g one" / "deep" / "v" / "zarr.json").read_text())
    assert inner["attributes"]["_nczarr_array"] == {"dimension_references": ["/g one/deep/y"]}
    group = zarr.open_group(str(view.where), mode="r", zarr_format=3)
    for path, want in values.items():
        assert np.array_equal(group[path][...], want), path


def test_what_is_odd_is_said_once(mount, room):
    source = room / "source"
    (source / "n5" / "x").mkdir(parents=True)
    (source / "n5" / "attributes.json").write_text('{"n5": "99.0.0"}')
    dataset = {"dimensions": [4], "blockSize": [4], "dataType": "uint8", "compression": {"type": "raw"}}
    (source / "n5" / "x" / "attributes.json").write_text(json.dumps(dataset))
    written(zarr.create_group(str(source / "z"), zarr_format=2), "v", (4,), (4,))
    written(zarr.open_group(str(source / "z")), "gone", (4,), (4,))
    zarr.consolidate_metadata(str(source / "z"), zarr_format=2)
    shutil.rmtree(source / "z" / "gone")
    listed = json.loads((source / "z" / ".zmetadata").read_text())
    listed["metadata"]["../gone/.zarray"] = listed["metadata"]["gone/.zarray"]
    (source / "z" / ".zmetadata").write_text(json.dumps(listed))
    view = mount(source, "--nczarr", "--refresh", "0")
    for _ in range(3):
        shown = json.loads((view / "z" / ".zmetadata").read_text())["metadata"]
        # Zarr's readers believe it of an array that has no directory.
        assert "../gone/.zarray" not in shown and "gone/.zarray" in shown
        assert json.loads((view / "z" / ".zattrs").read_text())["_nczarr_group"]["arrays"] == ["gone", "v"]
        assert (view / "n5" / "x" / ".zarray").exists()
    assert view.text().count('lists "../gone"') == 1
    assert view.text().count("99.0.0") == 1


@pytest.mark.parametrize("text", ["[1, 2]", '"text"', "7"])
def test_a_file_of_someone_else_that_is_called_as_n5s_passes_through(text, mount, room):
    written(zarr.create_group(str(room / "source" / "z"), zarr_format=2), "v", (4,), (4,))
    (room / "source" / "attributes.json").write_text(text)
    view = mount(room / "source")
    assert (view / "attributes.json").read_text() == text
    assert zarr.open_group(str(view / "z"), mode="r")["v"][...].tolist() == [1, 2, 3, 4]
    view = mount(room / "source", "--format", "zarr2")
    assert (view / "attributes.json").read_text() == text


def test_a_store_that_is_not_looked_for_is_shown_as_it_is(corpus, mount):
    view = mount(corpus.path("n5/rust.n5"), "--format", "zarr2")
    for name in data.entries(corpus.path("n5/rust.n5")):
        assert (view / name).read_bytes() == (corpus.path("n5/rust.n5") / name).read_bytes()


FILLS = [("<f4", -999.0), ("<f8", [-999.0]), ("<f4", float("nan")), ("<i2", -999), ("<f8", float("inf"))]


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("dtype, fill", FILLS)
def test_fill_values_that_xarray_spells(version, dtype, fill, mount, room):
    """netcdf-c masks what xarray masks in its own spelling, in either version of the marks; those of Zarr v3 it gets in Zarr v2."""
    values = np.array([1, -999, 3, -999 if dtype == "<i2" else np.inf], dtype)
    only = fill[0] if isinstance(fill, list) else fill
    if version == 3:
        found = xarray.Dataset({"w": (("x",), values, {"_FillValue": np.dtype(dtype).type(only)})})
        found.to_zarr(room / "source", zarr_format=3, consolidated=False)
    else:
        array = zarr.open_group(str(room / "source"), mode="w", zarr_format=2).create_array("w", data=values, fill_value=None)
        array.attrs.update({"_ARRAY_DIMENSIONS": ["x"], "_FillValue": fill})
    want = xarray.open_zarr(room / "source", consolidated=False, chunks=None)["w"].isnull().values
    second = mount(room / "source", "--nczarr", "--zarr", "2")
    third = mount(room / "source", "--nczarr", "--zarr", "3")
    for view in (second, mount(third.where, "--zarr", "2")):
        got = netcdf(view.where, room / "found")["variables"]["w"]
        kept = np.atleast_1d(got["attributes"]["_FillValue"])
        assert kept.dtype == values.dtype and np.array_equal(kept, np.atleast_1d(only).astype(dtype), equal_nan=True)
        with netCDF4.Dataset(f"file://{view.where}#mode=nczarr,file") as dataset:
            masked = np.ma.getmaskarray(dataset["w"][...])
        assert masked.tolist() == want.tolist() and np.array_equal(got["values"], values)
    shown = json.loads((third / "w" / "zarr.json").read_text())["attributes"]
    types = {item["name"]: item["configuration"]["type"] for item in shown["_nczarr_attrs"]["attribute_types"]}
    assert sorted(types) == sorted(shown) and types["_FillValue"] == {"f": "char", "i": "int16"}[dtype[1]]
    # No released netcdf-c reads this one.
    again = xarray.open_zarr(str(third.where), consolidated=False, chunks=None)["w"]
    assert again.isnull().values.tolist() == want.tolist() and again.dims == ("x",)


@pytest.mark.parametrize("version, fill", [(2, -1.7976931348623157e308), (2, [-999.0, 1e39]), (3, -1.7976931348623157e308)])
def test_fill_values_beyond_their_type_mask_no_infinity(version, fill, mount, room):
    """A no-data value of float64 equals no float32; as one it were an infinity."""
    group = zarr.open_group(str(room / "source"), mode="w", zarr_format=version)
    more = {"fill_value": None} if version == 2 else {"dimension_names": ["x"], "fill_value": 0}
    array = group.create_array("w", shape=(4,), dtype="<f4", **more)
    array[...] = [1, -np.inf, np.inf, 2]
    spelled = fill if version == 2 else base64.b64encode(np.float64(fill).tobytes()).decode()
    array.attrs.update({"_ARRAY_DIMENSIONS": ["x"], "_FillValue": spelled})
    want = xarray.open_zarr(room / "source", consolidated=False, chunks=None)["w"].values
    assert want.tolist() == [1, -np.inf, np.inf, 2]
    for view in (mount(room / "source", "--nczarr"), mount(mount(room / "source", "--nczarr", "--zarr", "3").where, "--zarr", "2")):
        with netCDF4.Dataset(f"file://{view.where}#mode=nczarr,file") as dataset:
            assert not np.ma.getmaskarray(dataset["w"][...]).any() and dataset["w"][...].tolist() == want.tolist()
            kept = np.atleast_1d(getattr(dataset["w"], "_FillValue", dataset["w"].__dict__.get("missing_value")))
            assert kept.dtype == np.float64 and np.array_equal(kept, np.atleast_1d(fill))


def test_several_fill_values_are_typed_by_the_name_that_they_have_in_zarr_3(mount, room):
    array = zarr.open_group(str(room / "source"), mode="w", zarr_format=2).create_array("w", shape=(4,), dtype="<i2", fill_value=None)
    array[...] = [1, 2, 3, 4]
    array.attrs.update({"_ARRAY_DIMENSIONS": ["x"], "_FillValue": [1, 2]})
    third = mount(room / "source", "--nczarr", "--zarr", "3")
    shown = json.loads((third / "w" / "zarr.json").read_text())["attributes"]
    types = {item["name"]: item["configuration"]["type"] for item in shown["_nczarr_attrs"]["attribute_types"]}
    assert sorted(types) == sorted(shown) and types["missing_value"] == "int32"
    masks = [xarray.open_zarr(str(where), consolidated=False, chunks=None)["w"].isnull().values for where in (room / "source", third.where)]
    assert masks[0].tolist() == masks[1].tolist() == [True, True, False, False]


def of_zarr_3(directory, attributes, shape=None, dtype=None, values=None):
    """A group, or an array of one chunk, in Zarr v3 with the marks of NCZarr's specification for it."""
    directory.mkdir(parents=True, exist_ok=True)
    document = {"zarr_format": 3, "node_type": "group", "attributes": attributes}
    if shape is not None:
        document |= {
            "node_type": "array", "shape": shape, "data_type": dtype, "fill_value": [0] * values.itemsize if dtype[0] == "r" else 0,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}}, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        }  # fmt: skip
        (directory / ".".join(["c", *("0" for _ in shape)])).write_bytes(values.tobytes())
    (directory / "zarr.json").write_text(json.dumps(document))


def types(**named):
    return {"_nczarr_attrs": {"attribute_types": [{"name": name, "configuration": {"type": kind}} for name, kind in named.items()]}}


def test_marks_in_zarr_3_are_read_by_netcdf_in_zarr_2(mount, room):
    """No released netcdf-c reads or writes NCZarr in Zarr v3; shown in v2 the same dataset is one that it reads."""
    source = room / "source"
    dimensions = [{"name": "t", "size": 3, "unlimited": 1}, {"name": "y", "size": 4, "unlimited": 0}]
    marks = {"_nczarr_superblock": {"version": "3.0.0"}, "_nczarr_group": {"dimensions": dimensions, "arrays": ["v", "letters", "names", "point"], "subgroups": ["g"]}}
    of_zarr_3(source, {"title": "of the third", "count": 7, **marks, **types(title="char", count="uint16", _nczarr_attrs="json")})
    inner = {"dimensions": [{"name": "z", "size": 2, "unlimited": 0}], "arrays": ["w"], "subgroups": []}
    of_zarr_3(source / "g", {"_nczarr_group": inner, **types()})
    want = {
        "v": np.arange(12, dtype="<i2").reshape(3, 4),
        "letters": np.array([b"a", b"b", b"", b"d"], "S1"),
        "names": np.array([b"one", b"", b"eight888"], "S8"),
        "point": np.array(2.5),
        "g/w": np.arange(8, dtype="<f4").reshape(4, 2) / 4,
    }
    mark = lambda *names, **more: {"_nczarr_array": {"dimension_references": list(names), **more}}  # noqa: E731
    of_zarr_3(source / "v", {"scale": 0.5, **mark("/t", "/y"), **types(scale="float32")}, [3, 4], "int16", want["v"])
    of_zarr_3(source / "letters", mark("/y", type_alias="char"), [4], "uint8", want["letters"])
    of_zarr_3(source / "names", mark("/t", type_alias="string"), [3], "r64", want["names"])
    of_zarr_3(source / "point", mark(), [], "float64", want["point"])
    of_zarr_3(source / "g/w", mark("/y", "/g/z"), [4, 2], "float32", want["g/w"])
    for options in (["--zarr", "2"], ["--nczarr", "--zarr", "2"]):
        view = mount(source, *options)
        found = netcdf(view.where, room / "found")
        assert found["dimensions"]["t"] == (3, True) and found["dimensions"]["y"] == (4, False) and found["dimensions"]["g/z"] == (2, False)
        assert {path: variable["dimensions"] for path, variable in found["variables"].items()} == {
            "v": ["t", "y"], "letters": ["y"], "names": ["t"], "point": [], "g/w": ["y", "z"],
        }  # fmt: skip
        for path, values in want.items():
            got = np.asarray(found["variables"][path]["values"])
            if path == "names":
                assert found["variables"][path]["dtype"] == "str" and got.tolist() == ["one", "", "eight888"]
            else:
                assert got.dtype == values.dtype and np.array_equal(got, values), path
        assert found["attributes"]["@title"] == "of the third" and found["attributes"]["@count"].dtype == np.uint16
        assert found["variables"]["v"]["attributes"]["scale"].dtype == np.float32
    # As it is, and to readers of Zarr v3, it is what it was.
    view = mount(source)
    assert json.loads((view / "zarr.json").read_text())["attributes"]["_nczarr_group"] == marks["_nczarr_group"]
    assert np.array_equal(zarr.open_array(str(view / "g/w"), mode="r", zarr_format=3)[...], want["g/w"])


FILLS = {
    **{dtype: [7, [7], 7.0, [1, 2], -(2 ** (8 * np.dtype(dtype).itemsize - 1))] for dtype in ("|i1", "<i2", "<i4", "<i8")},
    **{dtype: [7, [7], 7.0, 2 ** (8 * np.dtype(dtype).itemsize) - 1] for dtype in ("|u1", "<u2", "<u4", "<u8")},
    **{dtype: [7, [7], 0.1, float("nan"), "NaN", ["NaN"], "-Infinity", [1.5, 2.5]] for dtype in ("<f4", "<f8")},
    "|S3": ["abc", "0", ""],
}


def test_words_among_numbers_are_numbers(mount, room):
    """netcdf-c writes words for what is not finite, and reads them so in pure Zarr; zarr-python puts them into consolidated metadata."""
    numbers = {"ends": [0.5, np.inf], "low": [-np.inf, 2.0], "middle": [1.0, np.nan, 3.0]}
    source = room / "source"
    dataset = netCDF4.Dataset(f"file://{source}#mode=zarr,file", "w")
    for name, value in numbers.items():
        dataset.setncattr(name, np.array(value))
    dataset.close()
    assert json.loads((source / ".zattrs").read_text())["ends"] == [0.5, "Infinity"]
    found = netcdf(mount(source, "--nczarr").where, room / "found")["attributes"]
    for name, value in numbers.items():
        assert found["@" + name].dtype == np.float64 and np.array_equal(found["@" + name], value, equal_nan=True), name


def test_fill_values_have_the_type_of_their_variable(mount, room):
    """netcdf-c gives them that in pure Zarr, whatever their spelling is."""
    root = zarr.create_group(str(room / "source"), zarr_format=2)
    for dtype, fills in FILLS.items():
        for number, fill in enumerate(fills):
            array = root.create_array(f"{dtype[1:]}_{number}", shape=(4,), chunks=(2,), dtype=dtype, compressors=None)
            (room / "source" / array.basename / ".zattrs").write_text(json.dumps({"_ARRAY_DIMENSIONS": ["x"], "_FillValue": fill}))
    want = netcdf(room / "source", room / "want", "zarr,file")["variables"]
    found = netcdf(mount(room / "source", "--nczarr").where, room / "found")["variables"]
    assert found.keys() == want.keys() and len(want) == sum(map(len, FILLS.values()))
    for name, variable in want.items():
        fill, given = (np.asarray(of["attributes"]["_FillValue"]) for of in (variable, found[name]))
        assert given.dtype == fill.dtype and np.array_equal(given, fill, equal_nan=fill.dtype.kind == "f"), (name, given, fill)
