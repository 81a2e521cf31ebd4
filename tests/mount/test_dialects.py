"""Hierarchies that writers leave behind although no specification has them. zarr-python writes the values and reads them back."""

import errno
import json
import os
import zipfile

import numpy as np
import pytest
import tensorstore
import zarr

from support.reading import disagreements


def written(path, shape=(7, 5), chunks=(2, 3), **options):
    """An array of Zarr v2 with every chunk stored, and what zarr-python reads from it."""
    array = zarr.create_array(str(path), shape=shape, chunks=chunks, dtype="<i4", zarr_format=2, fill_value=-1, **options)
    array[...] = np.arange(np.prod(shape), dtype="<i4").reshape(shape) + 1
    return array[...]


def edit(path, **members):
    """Changes members of a document; None takes one out."""
    document = json.loads(path.read_text())
    document.update(members)
    path.write_text(json.dumps({name: value for name, value in document.items() if value is not None}))


def zipped(path):
    """The same as an archive."""
    made = path.with_suffix(".zip")
    with zipfile.ZipFile(made, "w") as archive:
        for file in sorted(path.rglob("*")):
            archive.write(file, file.relative_to(path))
    return made


NESTED = {"name": "v2", "separator": "/"}


@pytest.mark.parametrize("container", ["directory", "zip"])
@pytest.mark.parametrize("lost", [None, (0, 0), (3, 0)])
def test_nested_chunks_of_an_array_that_does_not_tell(lost, container, room, mount):
    values = written(room / "a.zarr" / "x", chunk_key_encoding=NESTED)
    if lost:
        (room / "a.zarr" / "x" / "/".join(map(str, lost))).unlink()
        values = zarr.open_array(str(room / "a.zarr" / "x"), mode="r")[...]
    edit(room / "a.zarr" / "x" / ".zarray", dimension_separator=None)
    source = room / "a.zarr"
    if container == "zip":
        source = zipped(room / "a.zarr")
    view = mount(source)
    assert not disagreements(view / "x", [values])
    assert json.loads((view / "x" / ".zarray").read_text())["dimension_separator"] == "/"
    names = {os.path.relpath(os.path.join(here, f), view / "x") for here, _, files in os.walk(view / "x") for f in files}
    stored = {f"{i}/{j}" for i in range(4) for j in range(2)} - {"/".join(map(str, lost or ()))}
    assert names == stored | {".zarray"}
    assert view.text().count("no dimension_separator") == 1


def test_flat_chunks_stay_flat_whatever_lies_beside_them(room, mount):
    """An array below an array, under a number for a name, is no chunk."""
    values = written(room / "a.zarr")
    inner = written(room / "a.zarr" / "0")
    for document in (room / "a.zarr" / ".zarray", room / "a.zarr" / "0" / ".zarray"):
        edit(document, dimension_separator=None)
    view = mount(room / "a.zarr")
    assert not disagreements(view.where, [values])
    assert not disagreements(view / "0", [inner])
    for chunk in room.glob("a.zarr/*.*"):
        if chunk.name[0] != ".":
            chunk.unlink()
    view = mount(room / "a.zarr")
    assert not disagreements(view.where, [np.full_like(values, -1)])
    assert not disagreements(view / "0", [inner])


def told(path, version):
    """A group whose members only its consolidated metadata tells, as some copiers leave them. One has no directory at all."""
    group = zarr.create_group(str(path), zarr_format=version, attributes={"a": 1})
    group.create_group("g", attributes={"b": 2}).create_group("h")
    for name, filled in (("x", True), ("g/y", True), ("g/empty", False), ("g/own", True)):
        array = group.create_array(name, shape=(7, 5), chunks=(2, 3), dtype=">i2", fill_value=-1, attributes={"c": name})
        if filled:
            array[...] = np.arange(35).reshape(7, 5)
    zarr.consolidate_metadata(str(path), zarr_format=version)
    for document in [d for d in path.rglob("*") if d.name in ("zarr.json", ".zgroup", ".zarray", ".zattrs")]:
        if document.parent.name not in (path.name, "own"):
            document.unlink()
    for empty in ("g/empty", "g/h"):
        (path / empty).rmdir()
    # A directory's own documents come first.
    own = zarr.open_array(str(path / "g" / "own"), mode="r+")
    own.attrs["c"] = "newer"
    return path


def members(group):
    """All nodes of a hierarchy: attributes and values."""
    found = {name: (dict(node.attrs), node[...] if isinstance(node, zarr.Array) else None) for name, node in group.members(max_depth=None)}
    return {name: (attributes, None if values is None else (values.dtype.newbyteorder("="), values.tolist()))
            for name, (attributes, values) in found.items()}


@pytest.mark.parametrize("container", ["directory", "zip"])
@pytest.mark.parametrize("version", [2, 3])
def test_what_consolidated_metadata_alone_tells_is_there(version, container, room, mount):
    source = told(room / "a.zarr", version)
    want = members(zarr.open_consolidated(str(source), zarr_format=version))
    want["g/own"] = ({"c": "newer"}, want["g/own"][1])
    view = mount(source if container == "directory" else zipped(source))
    for consolidated in (False, True):
        group = zarr.open_group(str(view.where), mode="r", use_consolidated=consolidated)
        assert members(group) == want
    assert sorted(name for name in os.listdir(view / "g") if name[0] != "." and name != "zarr.json") == ["empty", "h", "own", "y"]
    assert not disagreements(view / "g" / "y", [np.arange(35, dtype=">i2").reshape(7, 5)])
    assert not disagreements(view / "g" / "empty", [np.full((7, 5), -1, ">i2")])
    assert members(zarr.open_group(str(view / "g"), mode="r")).keys() == {"y", "empty", "h", "own"}
    with pytest.raises(FileNotFoundError):
        os.stat(view / "g" / "none")


@pytest.mark.parametrize("version", [2, 3])
def test_consolidated_metadata_that_cannot_be_read_makes_nothing_absent(version, room, mount):
    source = told(room / "a.zarr", version)
    document = source / (".zmetadata" if version == 2 else "zarr.json")
    whole = document.read_text()
    document.write_text(whole[:-9])
    view = mount(source, "--refresh", "0")
    name, chunk = (".zarray", "0.0") if version == 2 else ("zarr.json", "c/0/0")
    for path in (f"x/{name}", f"g/y/{name}", f"x/{chunk}", "g/empty", "new"):
        with pytest.raises(OSError) as e:
            (view / path).read_bytes()
        assert e.value.errno == errno.EIO, path
    assert zarr.open_array(str(view / "g" / "own"), mode="r").attrs["c"] == "newer"
    # Once it can be read again, with a node more.
    tree = json.loads(whole)
    nodes = tree["metadata"] if version == 2 else tree["consolidated_metadata"]["metadata"]
    nodes.update({key.replace("x", "new", 1): value for key, value in nodes.items() if key.split("/")[0] == "x"})
    document.write_text(json.dumps(tree))
    group = zarr.open_group(str(view.where), mode="r", use_consolidated=False)
    assert members(group) == members(zarr.open_consolidated(str(source), zarr_format=version)) | {"g/own": members(group)["g/own"]}
    assert (group["new"][...] == -1).all()


def test_what_is_told_comes_after_the_names_of_a_very_large_group(room, mount):
    source = told(room / "a.zarr", 2)
    for i in range(5000):
        (source / f"n{i}").mkdir()
    document = json.loads((source / ".zmetadata").read_text())
    document["metadata"] |= {"n7/.zgroup": {"zarr_format": 2}, "new/.zgroup": {"zarr_format": 2}}
    (source / ".zmetadata").write_text(json.dumps(document))
    view = mount(source)
    names = [name for name in os.listdir(view.where) if name[0] != "."]
    assert sorted(names) == sorted(["g", "x", "new", *(f"n{i}" for i in range(5000))])
    assert (view / "new" / ".zgroup").exists() and (view / "n7" / ".zgroup").exists() and not (view / "n8" / ".zgroup").exists()


def test_consolidated_zarr_3_lists_what_there_is(room, mount):
    written(room / "a.zarr" / "g" / "x")
    zarr.open_group(str(room / "a.zarr"), zarr_format=2)
    zarr.open_group(str(room / "a.zarr" / "g"), zarr_format=2)
    source = zarr.consolidate_metadata(str(room / "a.zarr"), zarr_format=2)
    view = mount(room / "a.zarr", "--zarr", "3")
    shown = zarr.open_consolidated(str(view.where), zarr_format=3)
    assert {name for name, _ in shown.members(max_depth=None)} == {name for name, _ in source.members(max_depth=None)}


def test_consolidated_zarr_3_never_hides_what_cannot_be_shown(room, mount):
    """To zarr-python an array that consolidated metadata does not list is absent, and that would be silent."""
    written(room / "a.zarr" / "x")
    written(room / "a.zarr" / "y")
    zarr.open_group(str(room / "a.zarr"), zarr_format=2)
    zarr.consolidate_metadata(str(room / "a.zarr"), zarr_format=2)
    # A field that is an array has no name in Zarr v3.
    edit(room / "a.zarr" / "y" / ".zarray", dtype=[["f", "<i2", [2]]], fill_value=0)
    view = mount(room / "a.zarr", "--zarr", "3")
    group = zarr.open_group(str(view.where), mode="r", zarr_format=3)
    assert group["x"].shape == (7, 5)
    with pytest.raises(OSError):
        group["y"]




@pytest.mark.parametrize("dtype, fill", [("<f4", 1e39), (">f4", -1.7976931348623157e308), ("<f2", 65520), ("<c8", [1e39, 0.0])])
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_fill_value_too_large_for_its_type_is_infinite(dtype, fill, room, mount):
    """As in an array of single precision whose writer gave the largest double for "no data"."""
    written(room / "a.zarr")
    edit(room / "a.zarr" / ".zarray", dtype=dtype, fill_value=fill)
    for chunk in room.glob("a.zarr/[0-9]*"):
        chunk.unlink()
    values = zarr.open_array(str(room / "a.zarr"), mode="r")[...]
    assert np.isinf(values.real).all()
    for flavour in ("2", "3"):
        view = mount(room / "a.zarr", "--zarr", flavour)
        assert not disagreements(view.where, [values])


OWN = {  # of tensorstore, with the fill values that it writes
    "bfloat16": [None, 1.0625, -1e9, "NaN", "-Infinity", 0.0], "int2": [None, -2, 0], "int4": [None, -8, 7],
    "float4_e2m1fn": [None, "Cw=="],
    **{f"float8_{kind}": [None, 0.1, -1e9, "NaN"] for kind in ("e3m4", "e4m3fn", "e4m3fnuz", "e4m3b11fnuz", "e5m2", "e5m2fnuz")},
}  # fmt: skip


@pytest.mark.parametrize("flavour", ["2", "3"])
@pytest.mark.parametrize("dtype", OWN)
def test_types_that_tensorstore_alone_names_in_version_2(dtype, flavour, room, mount):
    import tensorstore

    opened = lambda driver, path: tensorstore.open({"driver": driver, "kvstore": {"driver": "file", "path": str(path)}}).result()
    # Integers by their values: what the bits beyond the type's are differs within tensorstore.
    seen = lambda values: values.astype("i1") if "int" in dtype else values.tobytes()
    for i, fill in enumerate(OWN[dtype]):
        metadata = {"shape": [5], "chunks": [2], "dtype": dtype, "compressor": {"id": "zlib", "level": 1}, "fill_value": fill}
        spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(room / "s" / str(i))}, "metadata": metadata}
        array = tensorstore.open(spec, create=True).result()
        array[2:].write(np.array([1, -2, 0]).astype(array.dtype.numpy_dtype)).result()
    (room / "s" / ".zgroup").write_text('{"zarr_format": 2}')
    view = mount(room / "s", "--zarr", flavour, "--fill-missing")
    for i, _ in enumerate(OWN[dtype]):
        want = opened("zarr", room / "s" / str(i)).read().result()
        chunks = b"".join((view / str(i) / str(n)).read_bytes() for n in range(3))
        for got in (opened("zarr" if flavour == "2" else "zarr3", view / str(i)).read().result(), np.frombuffer(chunks, want.dtype)[:5]):
            assert np.array_equal(seen(got), seen(want)), (got, want)
    assert not view.text()


@pytest.mark.parametrize("dtype, fill", [("bfloat16", "0x7fc1"), ("int4", 8), ("float8_e5m2", "0x41"), ("float4_e2m1fn", 1.5)])
def test_a_fill_value_that_tensorstore_takes_otherwise_is_refused(dtype, fill, room, mount):
    array = {"zarr_format": 2, "shape": [2], "chunks": [2], "dtype": dtype, "compressor": None, "order": "C", "fill_value": fill, "filters": None}
    (room / "s").mkdir()
    (room / "s" / ".zarray").write_text(json.dumps(array))
    view = mount(room / "s")
    with pytest.raises(OSError) as refused:
        (view / ".zarray").read_bytes()
    assert refused.value.errno == errno.EIO and "fill_value" in view.text()


@pytest.mark.parametrize("flavour", ["2", "3"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("compact", [False, True])
def test_a_shuffle_of_version_3_that_names_no_size(dtype, compact, flavour, room, mount):
    """zarr-python then takes the size of the array's elements; numcodecs, in version 2, four bytes."""
    given = np.arange(35).reshape(7, 5).astype(dtype)
    array = zarr.create_array(str(room / "s/a"), shape=(7, 5), chunks=(4, 5), dtype=dtype, compressors=[zarr.codecs.numcodecs.Shuffle()])
    array[...] = given
    document = room / "s/a/zarr.json"
    made = json.loads(document.read_text())
    for codec in made["codecs"]:
        if codec["name"] == "numcodecs.shuffle":
            codec["configuration"] = {} if compact else {"elementsize": None}
    document.write_text(json.dumps(made))
    assert np.array_equal(zarr.open_array(str(room / "s/a"), mode="r")[...], given)
    shown = mount(room / "s", "--zarr", flavour)
    assert np.array_equal(zarr.open_array(str(shown / "a"), mode="r")[...], given)


@pytest.mark.parametrize("flavour", ["2", "3"])
def test_gaps_between_fields(flavour, room, mount):
    """numpy spells them as fields without a name, as many as there are; zarr-python takes them as numpy does."""
    dtype = [["a", ">i2"], ["", "|V2"], ["b", "<f4"], ["", "|V3"]]
    document = {"zarr_format": 2, "shape": [6], "chunks": [4], "dtype": dtype, "fill_value": None, "order": "C", "filters": None, "compressor": None}
    (room / "a").mkdir()
    (room / "a/.zarray").write_text(json.dumps(document))
    for name in "01":
        (room / "a" / name).write_bytes(bytes(range(44)))
    given = zarr.open_array(str(room / "a"), mode="r")[...]
    assert given["a"][0] == 1 and given.dtype.itemsize == 11
    shown = mount(room / "a", "--zarr", flavour)
    found = zarr.open_array(str(shown.where), mode="r")[...]
    assert all(np.array_equal(found[name], given[name]) for name in given.dtype.names)


STRUCTURES = {
    "structured": ([["a", "int16"], ["b", "float32"]], "BwAAAAA/"),
    "struct": ([{"name": "a", "data_type": "int16"}, {"name": "b", "data_type": "float32"}], {"a": 7, "b": 0.5}),
}


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("kind", list(STRUCTURES))
@pytest.mark.filterwarnings("ignore")
def test_byte_order_of_structures(kind, endian, sharded, room, mount):
    """Big-endian `structured` is one thing to zarr-python and another to tensorstore, and each finds its own here."""
    fields, fill = STRUCTURES[kind]
    codecs = [{"name": "bytes", "configuration": {"endian": endian}}]
    if sharded:
        index = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]
        codecs = [{"name": "sharding_indexed", "configuration": {"chunk_shape": [2], "codecs": codecs, "index_codecs": index}}]
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [9], "data_type": {"name": kind, "configuration": {"fields": fields}}, "fill_value": fill,
        "codecs": codecs, "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}}, "chunk_key_encoding": {"name": "default"},
    }  # fmt: skip
    (room / "s/a").mkdir(parents=True)
    (room / "s/a/zarr.json").write_text(json.dumps(document))

    def field(base, name):
        return tensorstore.open({"driver": "zarr3", "kvstore": f"file://{base}/", "field": name}, open=True).result()

    field(room / "s/a", "a")[:6] = np.arange(6, dtype="i2") + 1
    field(room / "s/a", "b")[:6] = np.arange(6, dtype="f4") / 8
    shown = mount(room / "s")
    for name in "ab":
        assert np.array_equal(field(shown / "a", name).read().result(), field(room / "s/a", name).read().result())
    if kind == "structured" and not sharded:  # zarr-python 3.1.6 cannot read structures in shards
        read = [zarr.open_array(str(base / "a"), mode="r")[...] for base in (room / "s", shown)]
        assert read[0].tobytes() == read[1].tobytes()
    # Without words of its own for the byte order, version 2 shows no such array that is in dispute.
    flat = mount(room / "s", "--zarr", "2")
    if kind == "structured" and endian == "big":
        with pytest.raises(OSError) as error:
            (flat / "a/.zarray").read_bytes()
        assert error.value.errno == errno.EOPNOTSUPP
    else:
        found = zarr.open_array(str(flat / "a"), mode="r")[...]
        assert found["a"].tolist() == field(room / "s/a", "a").read().result().tolist()


@pytest.mark.parametrize("endian", ["little", "big"])
@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 0, 1]])
def test_order_of_axes_of_the_index_of_a_shard(order, endian, room, mount):
    """That which changes nothing is read; any other is refused, and never taken for that."""
    index = [{"name": "transpose", "configuration": {"order": order}}, {"name": "bytes", "configuration": {"endian": endian}}, {"name": "crc32c"}]
    inner = {"chunk_shape": [2, 3], "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}], "index_codecs": index}
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [8, 9], "data_type": "int32", "fill_value": -1,
        "codecs": [{"name": "sharding_indexed", "configuration": inner}],
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 9]}}, "chunk_key_encoding": {"name": "default"},
    }  # fmt: skip
    (room / "s/a").mkdir(parents=True)
    (room / "s/a/zarr.json").write_text(json.dumps(document))
    given = np.arange(72, dtype="i4").reshape(8, 9)
    spec = {"driver": "zarr3", "kvstore": f"file://{room}/s/a/"}
    tensorstore.open(spec, open=True).result()[:7, :8] = given[:7, :8]
    shown = mount(room / "s")
    if order == sorted(order):
        found = zarr.open_array(str(shown / "a"), mode="r")[...]
        assert np.array_equal(found, tensorstore.open(spec, open=True).result().read().result())
    else:
        with pytest.raises(OSError) as error:
            (shown / "a/zarr.json").read_bytes()
        assert error.value.errno == errno.EOPNOTSUPP and "is not undone in an index" in shown.text()


UNITS = {"<M8": ["NaT", None], "<M8[generic]": ["NaT"], ">m8": ["NaT", 5], "<M8[s]": ["NaT", 5]}


@pytest.mark.parametrize("dtype, fill", [(dtype, fill) for dtype in UNITS for fill in UNITS[dtype]])
@pytest.mark.parametrize("options", [("--zarr", "2"), ("--zarr", "3"), ("--fill-missing",)], ids=["2", "3", "filled"])
@pytest.mark.filterwarnings("ignore")
def test_times_that_are_none_of_types_without_a_unit(dtype, fill, options, room, mount):
    """numpy takes no number for a date without a unit, but a name for none."""
    for version in (2, 3):
        (room / f"s/{version}").mkdir(parents=True)
    document = {"zarr_format": 2, "shape": [3], "chunks": [3], "dtype": dtype, "fill_value": fill, "order": "C", "filters": None, "compressor": None}
    (room / "s/2/.zarray").write_text(json.dumps(document))
    unit = {"unit": dtype[4:-1] or "generic", "scale_factor": 1}
    document = {
        "zarr_format": 3, "node_type": "array", "shape": [3], "fill_value": fill, "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "data_type": {"name": f"numpy.{'datetime' if dtype[1] == 'M' else 'timedelta'}64", "configuration": unit},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3]}}, "chunk_key_encoding": {"name": "default"},
    }  # fmt: skip
    (room / "s/3/zarr.json").write_text(json.dumps(document))
    want = zarr.open_array(str(room / "s/2"), mode="r")[...].astype("<i8").tolist()
    shown = mount(room / "s", *options)
    for version in (2, 3):
        # Version 3 has no null; what some writers leave is taken as it is in version 2.
        if fill is not None:
            assert zarr.open_array(str(room / f"s/{version}"), mode="r")[...].astype("<i8").tolist() == want
        if (version, fill, options) != (3, None, ("--fill-missing",)):
            assert zarr.open_array(str(shown / str(version)), mode="r")[...].astype("<i8").tolist() == want
        if len(options) == 1:
            assert np.fromfile(shown / str(version) / ["0", "c/0"][version - 2], "<i8").tolist() == want
HALVES = {"half": "a\ud800b", "\udcff": ["\udfff\ud83d", {"pair": "\U0001f600"}]}


@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("source", [2, 3, "n5"])
@pytest.mark.parametrize("shown", [2, 3])
def test_halves_of_surrogate_pairs_travel(shown, source, consolidated, room, mount):
    """Python writes them, and reads them back."""
    if source == "n5":
        (room / "a" / "x").mkdir(parents=True)
        dataset = {"dimensions": [4], "blockSize": [4], "dataType": "uint8", "compression": {"type": "raw"}}
        for name, members in (("a", {"n5": "2.0.0"}), ("a/x", dataset)):
            (room / name / "attributes.json").write_text(json.dumps(members | HALVES))
    else:
        group = zarr.create_group(str(room / "a"), zarr_format=source, attributes=HALVES)
        group.create_array("x", shape=(4,), chunks=(2,), dtype="u1", attributes=HALVES)
        if consolidated:
            zarr.consolidate_metadata(str(room / "a"), zarr_format=source)
    view = mount(room / "a", "--zarr", str(shown))
    group = zarr.open_group(str(view.where), mode="r")
    for node in (group, group["x"]):
        assert {name: node.attrs[name] for name in HALVES} == HALVES
    document = view / "x" / (".zattrs" if shown == 2 else "zarr.json")
    assert json.dumps(HALVES["half"]).strip('"') in document.read_text(encoding="utf-8")


@pytest.mark.parametrize("fill", [0, -7, 2**70, 1.5, -0.0, 1e20, 1e-7, float("nan"), True, "0", "", None], ids=repr)
def test_a_fill_value_of_texts_that_is_none(fill, room, mount):
    """zarr-python 2 writes 0 for texts as for all else; what it means to zarr-python 3 it means in either version."""
    document = {"zarr_format": 2, "shape": [4], "chunks": [2], "dtype": "|O", "fill_value": fill, "order": "C", "compressor": None}
    (room / "a").mkdir()
    (room / "a" / ".zarray").write_text(json.dumps({**document, "filters": [{"id": "vlen-utf8"}]}))
    expected = zarr.open_array(str(room / "a"), mode="r")[...].tolist()
    for flavour in ("2", "3"):
        view = mount(room / "a", "--zarr", flavour)
        found = zarr.open_array(str(view.where), mode="r")
        assert found.metadata.zarr_format == int(flavour) and found[...].tolist() == expected


def test_a_name_with_half_of_a_surrogate_pair_is_not_absent(room, mount):
    """Python writes a byte of a file's name that is no UTF-8 as such a half."""
    group = zarr.create_group(str(room / "s" / "a"), zarr_format=2)
    group.create_array("x", shape=(4,), chunks=(2,), dtype="u1")[...] = 7
    zarr.consolidate_metadata(str(room / "s" / "a"), zarr_format=2)
    edit(room / "s" / "a" / "x" / ".zarray", fill_value=9)
    metadata = json.loads((room / "s" / "a" / ".zmetadata").read_text())
    metadata["metadata"]["y\udcff/.zarray"] = metadata["metadata"]["x/.zarray"]
    (room / "s" / "a" / ".zmetadata").write_text(json.dumps(metadata))
    (room / "s" / "text").mkdir()
    (room / "s" / "text" / ".zarray").write_text((room / "s" / "a" / "x" / ".zarray").read_text())
    edit(room / "s" / "text" / ".zarray", dtype="<U2", fill_value="\ud800")
    view = mount(room / "s")
    with pytest.raises(OSError):
        (view / "a" / ".zmetadata").read_bytes()
    assert (zarr.open_array(str(view / "a" / "x"), mode="r")[...] == 7).all()
    # In an element it would be other characters.
    with pytest.raises(OSError):
        (view / "text" / ".zarray").read_bytes()
