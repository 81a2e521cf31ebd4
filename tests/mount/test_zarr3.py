"""Zarr v3: every array of third-party writers is the truth, and what the format says of shards, names and members holds.

The stores are written by zarr-python, tensorstore, zarrs, z5py, xarray and webknossos (`tests/data/README.md`), or by the first
two of them within a test; what is right is what they wrote, or read from the source.
"""

import json
import os
import shutil
import subprocess
import warnings

import ml_dtypes  # noqa: F401  (numpy learns the names of small types)
import numpy as np
import pytest
import zarr

from support import data
from support.checks import check_array, check_groups, inside
from support.mounting import binary
from support.reading import attributes, by_zarr, difference, disagreements, tensorstore_of
from support.zarr3 import BYTES, FLAVOURS, GZIP, document, numbers, place, read, refused, shard, write

CORPUS = data.stores("zarr3.tar.xz")
SMALL = ["int2", "int4", "float4_e2m1fn", "float8_e3m4", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


@pytest.fixture(autouse=True)
def quiet():
    """zarr-python warns of every type that no specification has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def only_in_version_3(record):
    kind = json.loads((record.base / record.store / record.array / "zarr.json").read_text())["data_type"] if record.container == "dir" else ""
    return kind in SMALL or kind == "bfloat16"


@FLAVOURS
@pytest.mark.parametrize("store", sorted(CORPUS.stores))
def test_values(store, flavour, mount):
    view = mount(CORPUS.path(store), *flavour)
    problems, seen = [], 0
    for record in CORPUS.records[store]:
        directory = inside(view, record)
        seen += 1
        if not record.has_values:
            got = by_zarr(directory).ravel().tolist()
            same = [value.hex() if isinstance(value, bytes) else value for value in got]
            want = [value["bytes_hex"] if isinstance(value, dict) else value for value in record.items]
            problems += [] if same == want else [f"{record.id}: {got[:5]}"]
        elif not only_in_version_3(record):
            problems += [f"{record.id}: {text}" for text in check_array(record, directory)]
        elif "2" in flavour:
            refused(directory / ".zarray", view, f"{record.array}/.zarray: no Zarr v2 spelling of the data type")
        else:
            want = record.load(record.truth)
            got = read(directory)
            got = got.view("V2") if want.dtype.kind == "u" else got.astype(want.dtype)
            text = difference(got, want)
            problems += [f"{record.id}: {text}"] if text else []
    assert seen and not problems, "\n".join(problems[:40])


@pytest.mark.parametrize("store", sorted(CORPUS.stores))
def test_attributes(store, mount):
    view = mount(CORPUS.path(store))
    check_groups(CORPUS, store, view)
    for path in view.where.rglob("zarr.json"):
        made = json.loads(path.read_text())
        assert made["zarr_format"] == 3
        for codec in made.get("codecs", []):
            assert codec["name"] in ("bytes", "vlen-utf8", "vlen-bytes"), path


@FLAVOURS
def test_missing_chunks_filled(flavour, mount):
    """With `--fill-missing` the values are the same."""
    for store in ("zarr3/fills.zarr", "zarr3/rare.zarr", "zarr3/shard.zarr"):
        view = mount(CORPUS.path(store), "--fill-missing", *flavour)
        for record in CORPUS.records[store]:
            if record.has_values and not only_in_version_3(record):
                assert not check_array(record, view / record.array), record.id


SHARDED = [
    [shard([4, 2], [BYTES])],
    [{"name": "transpose", "configuration": {"order": [1, 0]}}, shard([2, 4], [BYTES, GZIP])],
    [BYTES, GZIP],
]


@pytest.mark.parametrize("codecs", SHARDED, ids=["shards", "transposed", "gzip"])
@pytest.mark.parametrize("dtype", SMALL)
def test_small_types(dtype, codecs, mount, room):
    """One byte for each number, in the name that tensorstore knows; Zarr v2 has none."""
    source = place(room / "s" / "a", document([13, 9], [8, 4], dtype, codecs, 1))
    place(room / "s", {"zarr_format": 3, "node_type": "group", "attributes": {}})
    place(room / "s" / "b", document([4], [4]))
    given = np.random.default_rng(3).integers(-2, 2, (13, 9)).astype(np.dtype(dtype))
    write(source, given, np.s_[:8, :])  # nothing is written of the second row of chunks
    want = read(source).astype(float)
    for options in ([], ["--fill-missing"]):
        view = mount(room / "s", *options)
        assert json.loads((view / "a/zarr.json").read_text())["data_type"] == dtype
        assert np.array_equal(read(view / "a").astype(float), want)
        assert all(os.stat(view / "a" / name).st_size == np.prod(json.loads((view / "a/zarr.json").read_text())["chunk_grid"]["configuration"]["chunk_shape"])
                   for name in data.entries(view / "a") if name != "zarr.json")  # fmt: skip
    view = mount(room / "s", "--zarr", "2")
    refused(view / "a/.zarray", view, dtype)
    assert not disagreements(view / "b", [np.zeros(4, "<u2")])


@pytest.mark.parametrize("dtype", [name for name in SMALL if name.startswith("float8")])
def test_fill_values_of_small_types(dtype, mount, room):
    words = [0, 0.1, -1.5, 1e9, "NaN", "0x91", -8]
    words += ["Infinity", "-Infinity"] if dtype in ("float8_e3m4", "float8_e5m2") else []
    for n, word in enumerate(words):
        place(room / "s" / f"a{n}", document([3], [2], dtype, [{"name": "bytes"}], word))
    for options in ([], ["--fill-missing"]):
        view = mount(room / "s", *options)
        for n, word in enumerate(words):
            assert json.loads((view / f"a{n}/zarr.json").read_text())["fill_value"] == word
            assert read(view / f"a{n}").tobytes() == read(room / "s" / f"a{n}").tobytes(), (word, options)


class View2:
    """The name of a chunk that is absent from the store."""

    @staticmethod
    def key(made):
        return "/".join(["c", *(str((length - 1) // chunk) for length, chunk in zip(made["shape"], made["chunk_grid"]["configuration"]["chunk_shape"]))])


@pytest.mark.parametrize("codecs", SHARDED, ids=["shards", "transposed", "gzip"])
def test_a_type_that_is_not_known_stays_in_its_codec(codecs, mount, room):
    """tensorstore has a type whose fill values mean something else than the specification says; it reads its own array."""
    source = place(room / "s" / "a", document([13, 9], [8, 4], "float8_e8m0fnu", codecs, 1.0))
    given = (2.0 ** np.random.default_rng(3).integers(-9, 9, (13, 9))).astype(np.dtype("float8_e8m0fnu"))
    write(source, given, np.s_[:8, :])
    view = mount(room / "s")
    assert read(view / "a").tobytes() == read(source).tobytes()
    made = json.loads((view / "a/zarr.json").read_text())
    assert made["data_type"] == "float8_e8m0fnu" and [codec["name"] for codec in made["codecs"]][-1] == "bytes"
    view = mount(room / "s", "--zarr", "2")
    refused(view / "a/.zarray", view, "float8_e8m0fnu")
    with pytest.raises(OSError):
        (mount(room / "s", "--fill-missing") / "a" / View2.key(made)).read_bytes()


@FLAVOURS
def test_consolidated_metadata_tells_what_the_documents_tell(flavour, mount, room):
    group = zarr.create_group(str(room / "s"), zarr_format=3, attributes={"a": float("nan")})
    inner = group.create_group("g", attributes={"µ": [1]})
    given = numbers((8, 6))
    for parent, name in ((group, "x"), (inner, "y")):
        made = parent.create_array(name, shape=(8, 6), chunks=(2, 3), shards=(4, 6), dtype="u2", dimension_names=["r", "c"], compressors=zarr.codecs.BloscCodec())
        made[...] = given
    zarr.consolidate_metadata(str(room / "s"), zarr_format=3)
    view = mount(room / "s", *flavour)
    version = 2 if "2" in flavour else 3
    shown = zarr.open_consolidated(str(view.where), zarr_format=version)
    assert set(dict(shown.members(max_depth=None))) == {"x", "g", "g/y"}
    assert np.array_equal(shown["x"][...], given) and np.array_equal(shown["g/y"][...], given)
    if version == 3:
        listed = json.loads((view / "zarr.json").read_text())["consolidated_metadata"]
        assert listed["must_understand"] is False and listed["kind"] == "inline"
        for path, made in listed["metadata"].items():
            own = json.loads((view / path / "zarr.json").read_text())
            made.pop("consolidated_metadata", None), own.pop("consolidated_metadata", None)
            assert made == own, path
    else:
        for path, made in json.loads((view / ".zmetadata").read_text())["metadata"].items():
            assert json.dumps(made) == json.dumps(json.loads((view / path).read_text())), path


@pytest.mark.parametrize("change", [
    {"data_type": "bfloat16"},
    {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "unknown"}]},
])
def test_consolidated_metadata_in_version_2_hides_nothing_that_has_no_words_there(change, mount, room):
    """zarr-python believes it of what there is; without it, it looks at each node."""
    group = zarr.create_group(str(room / "s"), zarr_format=3)
    for name in ("x", "g/y"):
        group.create_array(name, shape=(4, 6), chunks=(2, 3), dtype="<u2")[...] = numbers((4, 6))
    zarr.consolidate_metadata(str(room / "s"), zarr_format=3)
    for document in (room / "s" / "zarr.json", room / "s" / "g" / "y" / "zarr.json"):
        members = json.loads(document.read_text())
        members.get("consolidated_metadata", {"metadata": {"g/y": members}})["metadata"]["g/y"].update(change)
        document.write_text(json.dumps(members))
    view = mount(room / "s", "--zarr", "2")
    assert not (view / ".zmetadata").exists() and ".zmetadata" not in os.listdir(view.where)
    shown = zarr.open_group(str(view.where), mode="r")
    assert np.array_equal(shown["x"][...], numbers((4, 6)))
    with pytest.raises(OSError):
        shown["g/y"]
    assert view.text().count("is not shown, because") == 1
    found = subprocess.run([binary(), "check", "--zarr", "2", room / "s"], capture_output=True, text=True)
    problems = [line for line in found.stdout.splitlines() if line.split(" ")[0] in ("missing", "unsupported", "corrupt")]
    assert found.returncode != 0 and problems and all("g/y" in line for line in problems), found


def test_names_of_axes_travel_both_ways(mount, room):
    given = numbers((4, 6))
    for version in (2, 3):
        names = {"dimension_names": ["row", "µ"]} if version == 3 else {"attributes": {"_ARRAY_DIMENSIONS": ["row", "µ"]}}
        group = zarr.create_group(str(room / f"s{version}"), zarr_format=version)
        group.create_array("v", shape=(4, 6), chunks=(2, 3), dtype="<u2", **names)[...] = given
    for source in (2, 3):
        for shown in (2, 3):
            view = mount(room / f"s{source}", "--zarr", str(shown))
            if shown == 3:
                made = zarr.open_array(str(view / "v"), mode="r", zarr_format=3)
                assert list(made.metadata.dimension_names) == ["row", "µ"] and "_ARRAY_DIMENSIONS" not in made.attrs
            else:
                assert attributes(view / "v") == {"_ARRAY_DIMENSIONS": ["row", "µ"]}
            assert np.array_equal(by_zarr(view / "v"), given)


def test_axes_without_a_name(mount, room):
    """Zarr v2 has no word for an axis without a name: then none is named there."""
    source = place(room / "s", document([4, 6], [2, 3], dimension_names=[None, "x"]))
    assert json.loads((mount(source) / "zarr.json").read_text())["dimension_names"] == [None, "x"]
    assert attributes(mount(source, "--zarr", "2").where) == {}


def test_what_must_be_understood(mount, room):
    group = {"zarr_format": 3, "node_type": "group", "attributes": {}}
    place(room / "s", group)
    place(room / "s/kept", document([4], [4], hint={"must_understand": False, "a": 1}))
    place(room / "s/named", document([4], [4], riddle={"must_understand": True}))
    place(room / "s/silent", document([4], [4], enigma={"a": 1}))
    place(room / "s/text", document([4], [4], puzzle="a"))
    place(room / "s/group", group | {"mystery": {"must_understand": True}})
    place(room / "s/transformed", document([4], [4], storage_transformers=[{"name": "elsewhere"}]))
    view = mount(room / "s")
    assert not disagreements(view / "kept", [np.zeros(4, "<u2")])
    for name, word in {"named": "riddle", "silent": "enigma", "text": "puzzle", "group": "mystery", "transformed": "elsewhere"}.items():
        refused(view / name / "zarr.json", view, word)


@pytest.mark.parametrize("part, where", [("codecs", 0), ("chunk_grid", None), ("chunk_key_encoding", None)])
def test_a_member_that_is_not_known_is_no_default(part, where, mount, room):
    """A byte order or a separator that is misspelt is not the default one: zarr-python and tensorstore refuse such arrays as well."""
    big = {"name": "bytes", "configuration": {"endian": "big"}}
    dots = {"name": "default", "configuration": {"separator": "."}}
    plain = document([4], [4], codecs=[big], chunk_key_encoding=dots)
    source = place(room / "s/plain", plain)
    write(source, np.arange(4, dtype="<u2"))

    def changed(name, change):
        made = json.loads(json.dumps(plain))
        change(made[part] if where is None else made[part][where])
        shutil.copytree(source, room / "s" / name)
        return place(room / "s" / name, made)

    def misspelt(extension):
        extension["configuration"] = {member.capitalize(): value for member, value in extension["configuration"].items()}

    changed("misspelt", misspelt)
    changed("more", lambda extension: extension["configuration"].update(riddle=1))
    changed("beside", lambda extension: extension.update(riddle=extension["configuration"]))
    for name in ("misspelt", "more"):
        with pytest.raises((KeyError, TypeError, ValueError)):
            by_zarr(room / "s" / name)
    for name in ("misspelt", "more", "beside"):
        with pytest.raises(ValueError):
            tensorstore_of(room / "s" / name)
    changed("optional", lambda extension: extension["configuration"].update(hint={"must_understand": False}))
    view = mount(room / "s")
    for name in ("misspelt", "more", "beside"):
        refused(view / name / "zarr.json", view, "must be understood")
    for name in ("plain", "optional"):
        assert not disagreements(view / name, [np.arange(4, dtype="<u2")])


def test_a_member_of_a_data_type_that_is_not_known(mount, room):
    """zarr-python refuses these as well. What stays as it is, is for those who know it."""
    field = {"name": "a", "data_type": "uint16", "offset": 1}
    for name, dtype, fill in [
        ("plain", {"name": "uint16", "configuration": {"endian": "big"}}, 0),
        ("beside", {"name": "uint16", "endian": "big"}, 0),
        ("field", {"name": "struct", "configuration": {"fields": [field]}}, {"a": 0}),
        ("unknown", {"name": "vendor.time", "configuration": {"unit": "ns"}, "fallback": "int64"}, 0),
    ]:
        place(room / "s" / name, document([4], [4], dtype=dtype, fill=fill))
        with pytest.raises(Exception):  # noqa: B017  (of many kinds)
            by_zarr(room / "s" / name)
    place(room / "s/codec", document([4], [4], codecs=[BYTES, {"name": "vendor.codec", "configuration": {}, "riddle": 1}]))
    view = mount(room / "s")
    for name in ("plain", "beside", "field"):
        refused(view / name / "zarr.json", view, "must be understood")
    for name in ("unknown", "codec"):
        assert "vendor" in (view / name / "zarr.json").read_text()


@pytest.mark.parametrize("flavour", [(), ("--zarr", "2")], ids=["as-it-is", "2"])
def test_texts_behind_an_order_of_axes_that_is_none(flavour, mount, room):
    """Zarr v2 has no word for a transposition before texts, and needs none for one that moves nothing."""
    texts = np.array([["a", "bc"], ["", "\u00e9"]], dtype=object)
    for name, order in {"same": (0, 1), "other": (1, 0)}.items():
        zarr.create_array(room / "s" / name, shape=(2, 2), chunks=(2, 1), dtype=str, filters=[zarr.codecs.TransposeCodec(order=order)])[...] = texts
    view = mount(room / "s", *flavour)
    assert (by_zarr(view / "same") == texts).all()
    if flavour:
        refused(view / "other/.zarray", view, "no Zarr v2 spelling of the codecs that stay: transpose, vlen-utf8")
    else:
        assert (by_zarr(view / "other") == texts).all()


@pytest.mark.parametrize("dtype", ["<M8[s]", ">m8[10ns]"])
@pytest.mark.parametrize("options", [("--zarr", "3"), ("--fill-missing",)], ids=["3", "filled"])
def test_a_time_that_nobody_wrote_is_none(dtype, options, mount, room):
    array = zarr.create_array(room / "s", shape=(5,), chunks=(2,), dtype=dtype, zarr_format=2, fill_value=None)
    array[:2] = np.array([3, 4], "<i8").view(array.dtype.newbyteorder("<"))
    made = json.loads((room / "s/.zarray").read_text())
    (room / "s/.zarray").write_text(json.dumps(made | {"fill_value": None}))
    want = by_zarr(room / "s")
    assert np.isnat(want).tolist() == [False, False, True, True, True]
    assert by_zarr(mount(room / "s", *options).where).astype("<i8").tolist() == want.astype("<i8").tolist()


@pytest.mark.parametrize("keys", [{"name": "default"}, {"name": "v2"}, {"name": "suffix", "configuration": {"suffix": ".raw", "base_encoding": "default"}}])
@pytest.mark.parametrize("codecs", [[BYTES], [shard([])]], ids=["plain", "shard"])
@FLAVOURS
def test_the_one_chunk_of_an_array_without_axes_is_listed(keys, codecs, flavour, mount, room):
    """A copy of the tree has all its values: the names in the store need not be those that are shown."""
    made = document([], [], codecs=codecs) | {"chunk_key_encoding": {"name": keys["name"].replace("suffix", "default")}}
    write(place(room / "s", made), np.array(5, "<u2"))
    if keys["name"] == "suffix":
        (room / "s/c").rename(room / "s/c.raw")
        place(room / "s", made | {"chunk_key_encoding": keys})
    view = mount(room / "s", *flavour)
    shutil.copytree(view.where, room / "copy")
    assert zarr.open_array(room / "copy", mode="r")[()] == 5


def test_a_codec_that_is_not_known_stays_for_those_who_know_it(mount, room):
    """What was applied after it is removed; what was applied before it stays with it."""
    from dataclasses import dataclass

    from zarr.abc.codec import BytesBytesCodec
    from zarr.registry import register_codec

    @dataclass(frozen=True)
    class Flip(BytesBytesCodec):
        """Turns all bits over."""

        is_fixed_size = True

        @classmethod
        def from_dict(cls, _):
            return cls()

        def to_dict(self):
            return {"name": "test.flip"}

        async def _flip(self, chunk, spec):
            return spec.prototype.buffer.from_bytes(bytes(255 - byte for byte in chunk.to_bytes()))

        _decode_single = _encode_single = _flip

        def compute_encoded_size(self, size, _):
            return size

    register_codec("test.flip", Flip)
    codecs = [{"name": "transpose", "configuration": {"order": [1, 0]}}, {"name": "bytes", "configuration": {"endian": "big"}}, {"name": "test.flip"}, GZIP]
    given = numbers((7, 9))
    for name, list_of in {"plain": codecs, "shards": [shard([2, 2], codecs)]}.items():
        zarr.open_array(str(place(room / "s" / name, document([7, 9], [4, 4], codecs=list_of))), mode="r+")[...] = given
        view = mount(room / "s")
        assert np.array_equal(by_zarr(view / name), given)
        made = json.loads((view / name / "zarr.json").read_text())
        assert made["codecs"] == codecs[:3]
        (mount(room / "s") / name / "c/0/0").read_bytes()
        flat = mount(room / "s", "--zarr", "2")
        refused(flat / name / ".zarray", flat, "test.flip")


@pytest.mark.parametrize("keys", [
    {"name": "default"}, {"name": "default", "configuration": {"separator": "."}}, {"name": "v2"}, {"name": "v2", "configuration": {"separator": "/"}},
])  # fmt: skip
@FLAVOURS
def test_chunk_keys(keys, flavour, mount, room):
    cases = {"a": ((7, 9), (4, 4), [BYTES]), "point": ((), (), [BYTES]), "shards": ((7, 9), (4, 4), [shard([2, 2])])}
    for name, (shape, chunks, codecs) in cases.items():
        write(place(room / "s" / name, document(shape, chunks, codecs=codecs) | {"chunk_key_encoding": keys}), numbers(shape))
    view = mount(room / "s", *flavour)
    for name, (shape, _, _) in cases.items():
        assert not disagreements(view / name, [numbers(shape)]), name


def test_what_gdal_left_out_is_said_once(mount):
    """GDAL up to 3.10 writes no codec `bytes`; its arrays are shown with one, so that others read them too."""
    view = mount(CORPUS.path("zarr3/gdal.zarr"))
    for record in CORPUS.records["zarr3/gdal.zarr"]:
        for _ in range(2):
            assert by_zarr(view / record.array).shape == tuple(record.shape)
        assert view.text().count(f"{record.array}: names no codec that makes bytes") == 1


@FLAVOURS
def test_no_codecs_at_all_are_little_endian(flavour, mount, room):
    """zarrita.js writes an empty list where it was not told of any codec, no fill value, and attributes; it takes that for `bytes`."""
    made = document((5, 3), (2, 2), "int32", fill=0, attributes={})
    values = numbers((5, 3), "<i4") << 20
    write(place(room / "s" / "v", made), values, np.s_[:4])
    place(room / "s" / "v", made | {"codecs": [], "fill_value": None})
    place(room / "s" / "damaged", {name: value for name, value in made.items() if name != "attributes"} | {"codecs": []})
    view = mount(room / "s", *flavour)
    assert not disagreements(view / "v", [np.where(np.arange(5)[:, None] < 4, values, 0).astype("<i4")])
    assert view.text().count("v: names no codec that makes bytes") == 1
    with pytest.raises(OSError):
        (view / "damaged" / (".zarray" if flavour == ("--zarr", "2") else "zarr.json")).read_bytes()
    assert "damaged: zarr.json: codecs: no codec that makes bytes" in view.text()


def test_a_source_that_is_one_array(mount):
    """The root of a store may be an array itself."""
    (record,) = CORPUS.records["zarr3/rootarray.zarr"]
    assert not check_array(record, mount(CORPUS.path(record.store)).where)


def test_an_archive_within_a_directory(mount, room):
    record = CORPUS.records["zarr3/ome.zarr"][-1]
    shutil.make_archive(str(room / "s" / "ome"), "zip", CORPUS.path(record.store))
    view = mount(room / "s" / "ome.zip")
    assert not check_array(record, view / record.array)


def test_only_chunks_are_listed(mount, room):
    """Shards, suffixes and other separators of the source are not."""
    view = mount(CORPUS.path("zarr3/rare.zarr"))
    for array in ("keys/suffix", "keys/suffix_v2", "shard/dots", "shard/v2_keys", "shard/larger", "nested/three"):
        made = json.loads((view / array / "zarr.json").read_text())
        grid = [-(-length // chunk) for length, chunk in zip(made["shape"], made["chunk_grid"]["configuration"]["chunk_shape"])]
        keys = made["chunk_key_encoding"]
        names = {keys["configuration"]["separator"].join(["c"] * (keys["name"] == "default") + [str(i) for i in index]) for index in np.ndindex(*grid)}
        assert set(data.entries(view / array)) == names | {"zarr.json"}, array
