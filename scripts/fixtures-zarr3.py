#!/usr/bin/env python3
"""Has third-party writers fill Zarr v3 arrays of rare make, and third-party readers read them back.

    scripts/fixtures-zarr3.py OUT

writes into OUT the layout of `tests/data/zarr3.tar.xz`: stores, truth/*.npy and manifest.json. Each array begins as a
`zarr.json` in just the spelling that is wanted; zarr-python, tensorstore or zarrs then writes its chunks. The truth is what
the others read, and must be what was handed to the writer. Values follow from fixed seeds. Made by hand are the file names
of chunks with a suffix, the words of grids that are rectilinear but regular, and codecs that are bare names (`by_hand`). chunkmount has no part in it.

Needs zarr 3.1, zarrs 0.2, tensorstore, numcodecs, ml_dtypes, and rasterio 1.4 with its GDAL 3.10.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

warnings.simplefilter("ignore")

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
BIG = {"name": "bytes", "configuration": {"endian": "big"}}
CRC = {"name": "crc32c"}
GZIP = {"name": "gzip", "configuration": {"level": 1}}
ZSTD = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
INDEX = [BYTES, CRC]


def transpose(*order):
    return {"name": "transpose", "configuration": {"order": list(order)}}


def shard(chunks, codecs, index=INDEX, where=None):
    configuration = {"chunk_shape": chunks, "codecs": codecs, "index_codecs": index}
    return {"name": "sharding_indexed", "configuration": configuration | ({"index_location": where} if where else {})}


def numcodecs(name, **configuration):
    return {"name": f"numcodecs.{name}", "configuration": configuration}


def metadata(shape, chunks, dtype, codecs, fill=0, **more):
    return {
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype, "fill_value": fill, "codecs": codecs,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, **more,
    }  # fmt: skip


CUBE = ([13, 9, 11], [8, 6, 8])  # uneven edges on all axes
EVEN = ([17, 13, 15], [12, 12, 12])  # zarr-python checks the parts of a shard against axes in the order of the array
FIVE = ([3, 5, 4, 3, 5], [2, 4, 2, 2, 4])
TIME = {"name": "numpy.datetime64", "configuration": {"unit": "us", "scale_factor": 25}}
PAIR = {"name": "structured", "configuration": {"fields": [["n", "int16"], ["x", {"name": "structured", "configuration": {"fields": [["re", "float32"], ["tag", {"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}]]}}]]}}

# Name: writer, numpy dtype, metadata, and what is special.
CASES = {
    # Every level has an order of axes of its own, and none is its own inverse.
    "nested/orders": ("tensorstore", "<u2", metadata(*EVEN, "uint16", [transpose(2, 0, 1), shard([6, 4, 3], [transpose(1, 2, 0), shard([2, 1, 3], [transpose(2, 0, 1), BIG, GZIP])])], 7), {}),
    "nested/orders_start": ("zarr-python", "<i4", metadata(*EVEN, "int32", [transpose(1, 2, 0), shard([3, 4, 6], [transpose(2, 0, 1), shard([3, 1, 2], [BYTES, ZSTD], where="start")], where="start")], -7), {}),
    "nested/three": ("tensorstore", "<f4", metadata([17, 18], [16, 12], "float32", [shard([8, 6], [transpose(1, 0), shard([6, 4], [shard([2, 4], [BIG, CRC], [BIG])], [BIG, CRC], "start")])], "NaN"), {}),
    "nested/envelope": ("zarr-python", "<u4", metadata(*CUBE, "uint32", [shard([4, 6, 4], [shard([2, 3, 4], [BYTES]), GZIP]), ZSTD, CRC]), {}),
    "nested/envelope_start": ("zarr-python", "<u4", metadata(*CUBE, "uint32", [shard([4, 6, 4], [shard([2, 3, 4], [BYTES, GZIP], where="start"), ZSTD], where="start")]), {}),
    "shard/big": ("zarr-python", ">i8", metadata(*CUBE, "int64", [shard([4, 2, 4], [BIG], [BIG, CRC])], -(2**63)), {}),
    "shard/crc_outside": ("zarr-python", "<u2", metadata(*CUBE, "uint16", [shard([4, 3, 8], [BYTES, ZSTD]), CRC], 3), {}),
    "shard/gzip_outside": ("zarr-python", "<u2", metadata(*EVEN, "uint16", [transpose(2, 1, 0), shard([4, 3, 2], [BYTES]), GZIP], 3), {}),
    "shard/v2_keys": ("tensorstore", "<i2", metadata(*CUBE, "int16", [shard([4, 3, 8], [BYTES])], chunk_key_encoding={"name": "v2", "configuration": {"separator": "."}}), {}),
    "shard/dots": ("zarr-python", "<i2", metadata(*CUBE, "int16", [shard([4, 3, 8], [BYTES])], chunk_key_encoding={"name": "default", "configuration": {"separator": "."}}), {}),
    "shard/larger": ("tensorstore", "|u1", metadata([3, 5], [16, 16], "uint8", [shard([4, 4], [{"name": "bytes"}])], 9), {}),
    "shard/one_part": ("zarr-python", "<f8", metadata([6, 4], [4, 4], "float64", [shard([4, 4], [BYTES, GZIP])], 0.5), {}),
    "shard/scalar": ("tensorstore", "<f8", metadata([], [], "float64", [shard([], [BYTES, GZIP])], 0.5), {}),
    "shard/sparse": ("tensorstore", "<u2", metadata([40, 40], [16, 16], "uint16", [shard([4, 4], [BYTES, GZIP])], 65535), {"sparse": True}),
    "shard/time": ("zarr-python", "<M8[25us]", metadata([13, 17], [12, 12], TIME, [transpose(1, 0), shard([3, 4], [BIG, GZIP])], "NaT"), {}),
    "types/pairs": ("zarr-python", [("n", "<i2"), ("x", [("re", "<f4"), ("tag", "S3")])], metadata([13, 17], [12, 12], PAIR, [transpose(1, 0), {"name": "bytes"}, GZIP], "AAAAAAAAAAAA"), {}),
    "shard/zarrs_start": ("zarrs", "<f4", metadata(*CUBE, "float32", [shard([4, 3, 8], [transpose(1, 2, 0), BIG, ZSTD], where="start")], -0.0), {}),
    "shard/zarrs_nested": ("zarrs", "<u2", metadata(*CUBE, "uint16", [shard([8, 3, 8], [shard([4, 3, 2], [BYTES, GZIP])])], 5), {}),
    "axes/five": ("tensorstore", "<u2", metadata(*FIVE, "uint16", [transpose(3, 0, 4, 1, 2), BIG, GZIP]), {}),
    "axes/five_twice": ("zarr-python", "<c8", metadata(*FIVE, "complex64", [transpose(3, 0, 4, 1, 2), transpose(1, 2, 3, 4, 0), BIG], [1.5, "NaN"]), {"not": "zarrs"}),  # which reverses the two parts of a number as one
    "axes/five_in_shard": ("tensorstore", "|i1", metadata(*FIVE, "int8", [transpose(4, 0, 3, 1, 2), shard([2, 2, 1, 4, 1], [transpose(2, 4, 0, 1, 3), {"name": "bytes"}, ZSTD])], -1), {}),
    "axes/zarrs": ("zarrs", "<i4", metadata(*FIVE, "int32", [transpose(2, 0, 1, 4, 3), transpose(4, 2, 3, 0, 1), BYTES, GZIP]), {}),
    "words/bare": ("zarr-python", "|u1", metadata([7, 9], [4, 4], "uint8", [{"name": "bytes"}, CRC]), {"then": {"codecs": ["bytes", "crc32c"], "chunk_key_encoding": "default"}}),
    "words/bare_keys": ("zarr-python", "<u2", metadata([7, 9], [4, 4], "uint16", [BYTES], chunk_key_encoding={"name": "v2"}, dimension_names=["y", None], attributes={"units": "nm", "µ": [1, None, {"deep": True}]}), {}),
    "words/more": ("zarr-python", "<u2", metadata([7, 9], [4, 4], "uint16", [BYTES], ext={"must_understand": False, "x": 1}, dimension_names=["y", "x"]), {"reader": None}),
    "words/empty": ("tensorstore", "<u2", metadata([0, 9], [4, 4], "uint16", [shard([2, 2], [BYTES])]), {}),
    "types/bfloat16": ("tensorstore", "bfloat16", metadata([7, 9], [4, 4], "bfloat16", [shard([2, 4], [BIG])], "0x7fc1"), {"reader": None}),
    "filters/delta_in_order": ("zarr-python", "<i4", metadata(*CUBE, "int32", [transpose(1, 2, 0), numcodecs("delta", dtype="int32"), BYTES, numcodecs("zlib", level=1)], 1), {"reader": None, "contiguous": True}),
    "filters/in_shard": ("zarr-python", "<i4", metadata(*CUBE, "int32", [shard([4, 3, 8], [numcodecs("delta", dtype="<i4", astype="<i8"), BYTES, numcodecs("shuffle", elementsize=8), numcodecs("bz2", level=1), numcodecs("crc32")])], 1), {"reader": None}),
    "filters/scale": ("zarr-python", "<f8", metadata(*CUBE, "float64", [transpose(1, 2, 0), numcodecs("fixedscaleoffset", offset=1, scale=4, dtype="<f8", astype="<i4"), BYTES, GZIP], 0.0), {"reader": None, "quarters": True}),
    "filters/quantize": ("zarr-python", "<f4", metadata([13, 9], [8, 6], "float32", [numcodecs("quantize", digits=2, dtype="<f4"), BYTES, numcodecs("adler32")], 0.0), {"reader": None, "quarters": True}),
    "filters/bitround": ("zarr-python", "<f4", metadata([13, 9], [8, 6], "float32", [numcodecs("bitround", keepbits=12), BIG, numcodecs("lzma", preset=1)], 0.0), {"reader": None, "quarters": True}),
    "filters/bits": ("zarr-python", "|b1", metadata(*CUBE, "bool", [transpose(1, 2, 0), numcodecs("packbits"), {"name": "bytes"}, numcodecs("fletcher32")], True), {"reader": None}),
}  # fmt: skip


PIPELINES = {"zarrs": "zarrs.ZarrsCodecPipeline", "zarr-python": "zarr.core.codec_pipeline.BatchedCodecPipeline"}


def values(name, dtype, shape, special):
    random = np.random.default_rng(sum(map(ord, name)))
    size = int(np.prod(shape))
    if dtype == "bfloat16":
        import ml_dtypes

        return random.integers(-100, 100, size).astype(ml_dtypes.bfloat16).reshape(shape)
    dtype = np.dtype(dtype)
    if special.get("quarters"):
        return (random.integers(-400, 400, size) / 4).astype(dtype).reshape(shape)
    if dtype.kind in "fc":
        return random.integers(-100, 100, size).astype(dtype).reshape(shape)
    if dtype.names:
        made = np.zeros(size, dtype)
        made["n"], made["x"]["re"] = random.integers(-99, 99, size), random.integers(-99, 99, size)
        made["x"]["tag"] = [b"ab"[: n % 3] for n in range(size)]
        return made.reshape(shape)
    made = np.frombuffer(random.bytes(size * dtype.itemsize), dtype).copy()
    return (made.view("u1") % 2 == 1 if dtype.kind == "b" else made).reshape(shape)


def write(writer, path, given, special):
    whole = [slice(None)] if not special.get("sparse") else [(slice(1, 3), slice(2, 9)), (slice(33, 40), slice(39, 40))]
    if writer == "tensorstore":
        array = by_tensorstore(path)
        for part in whole:
            array[part].write(given[part]).result() if given.ndim else array.write(given).result()
        return
    import zarr

    with zarr.config.set({"codec_pipeline.path": PIPELINES[writer]}):
        array = zarr.open_array(str(path), mode="r+")
        for part in whole:
            array[part if given.ndim else ...] = given[part] if given.ndim else given


def by_tensorstore(path):
    import tensorstore

    return tensorstore.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": str(path)}}, open=True).result()


def read(reader, path):
    if reader == "tensorstore":
        return np.asarray(by_tensorstore(path).read().result())
    if reader == "GDAL":
        import rasterio

        with rasterio.open(f'ZARR:"{path.parent}":/{path.name}') as raster:
            return raster.read()
    import zarr

    with zarr.config.set({"codec_pipeline.path": PIPELINES[reader]}):
        return np.asarray(zarr.open_array(str(path), mode="r")[...])


def by_gdal(path, given, options):
    """GDAL copies a raster of bands; it makes a group at `path` and an array of the same name in it."""
    import rasterio
    import rasterio.shutil

    bands, height, width = given.shape
    with rasterio.open("/vsimem/given.tif", "w", driver="GTiff", dtype=given.dtype.name, width=width, height=height, count=bands) as raster:
        raster.write(given)
    rasterio.shutil.copy("/vsimem/given.tif", str(path), driver="Zarr", FORMAT="ZARR_V3", BLOCKSIZE="2,8,8", INTERLEAVE="BAND", **options)


def main():
    import numcodecs as library
    import rasterio
    import tensorstore
    import zarr
    from importlib.metadata import version

    versions = {"zarr-python": f"{zarr.__version__} (numcodecs {library.__version__})", "zarrs": version("zarrs"), "tensorstore": version("tensorstore"), "GDAL": rasterio.__gdal_version__}
    out = Path(sys.argv[1])
    (out / "truth").mkdir(parents=True, exist_ok=True)
    stores, arrays = [], []
    group = json.dumps({"zarr_format": 3, "node_type": "group", "attributes": {}})

    def add(store, name, writer, dtype, given, document, how, readers):
        """Keeps the record of an array that its readers read as it was given; one at least, and its writer's own counts last."""
        path, able = out / store / name, []
        for reader in sorted(readers, key=lambda reader: reader == writer):
            try:
                got = read(reader, path)
            except Exception as error:  # what one of them refuses, the other reads
                print(f"{name}: {reader} refuses: {str(error)[:120]}")
                continue
            able.append(reader)
            little = given.dtype.newbyteorder("<")
            assert got.shape == given.shape and got.astype(little).tobytes() == given.astype(little).tobytes(), (name, reader)
        truth = f"truth/{name.replace('/', '-')}.npy"
        plain = given if given.dtype.kind != "V" or given.dtype.names else given.view("u2")
        np.save(out / truth, np.ascontiguousarray(plain, plain.dtype.newbyteorder("<")))
        reader, *more = able
        record = {
            "id": f"{store.removesuffix('.zarr')}/{name}", "store": store, "array": name, "format": "zarr3", "container": "dir", "axes": "C",
            "truth": truth, "dtype": str(dtype), "shape": list(given.shape), "writer": writer, "writer_version": versions[writer],
            "codec": document["codecs"], "attrs": document.get("attributes", {}), "reader": reader, "confirmed_by": more,
        }  # fmt: skip
        if how:
            record["by_hand"] = how
        arrays.append(record)
        if store not in [known["store"] for known in stores]:
            stores.append({"store": store, "format": "zarr3", "container": "dir", "groups": {"": {}}})
            (out / store / "zarr.json").write_text(group)

    store = "zarr3/rare.zarr"
    for name, (writer, dtype, document, special) in CASES.items():
        path = out / store / name
        path.mkdir(parents=True)
        (path.parent / "zarr.json").write_text(group)
        (path / "zarr.json").write_text(json.dumps(document))
        given = values(name, dtype, document["shape"], special)
        write(writer, path, given, special)
        # Writers write the document again in their own words when they make an array; here none makes one.
        assert json.loads((path / "zarr.json").read_text()) == document
        if special.get("sparse"):
            full = np.full_like(given, document["fill_value"])
            for part in [(slice(1, 3), slice(2, 9)), (slice(33, 40), slice(39, 40))]:
                full[part] = given[part]
            given = full
        readers = ["zarr-python", "zarrs", "tensorstore"]
        readers = [reader for reader in readers if reader != special.get("not")]
        if "reader" in special:  # only the writer knows the codec or type
            readers = [writer]
        then = special.get("then", {})
        add(store, name, writer, dtype, given, document, ", ".join(then), readers)
        (path / "zarr.json").write_text(json.dumps(document | then))

    # The same chunks under names with a suffix, as the Rust crate zarrs names them, and as the registered extension does.
    shape, chunks = [7, 9], [4, 4]
    given = values("suffix", "<u2", shape, {})
    for name, keys in {
        "suffix": {"name": "zarrs.default_suffix", "configuration": {"suffix": ".raw"}},
        "suffix_dots": {"name": "zarrs.default_suffix", "configuration": {"separator": ".", "suffix": ".x7"}},
        "suffix_v2": {"name": "suffix", "configuration": {"suffix": ".raw", "base_encoding": {"name": "v2"}}},
    }.items():
        path = out / store / "keys" / name
        path.mkdir(parents=True)
        (path.parent / "zarr.json").write_text(group)
        base = keys["configuration"].get("base_encoding") or {"name": "default", "configuration": {"separator": keys["configuration"].get("separator", "/")}}
        document = metadata(shape, chunks, "uint16", [BYTES, GZIP], 3, chunk_key_encoding=base)
        (path / "zarr.json").write_text(json.dumps(document))
        write("zarr-python", path, given, {})
        add(store, f"keys/{name}", "zarr-python", "<u2", given, document, "chunk names and chunk_key_encoding", ["zarr-python", "zarrs", "tensorstore"])
        for file in [file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json"]:
            file.rename(file.with_name(file.name + keys["configuration"]["suffix"]))
        (path / "zarr.json").write_text(json.dumps(document | {"chunk_key_encoding": keys}))

    # Regular grids in the words of rectilinear ones.
    for name, edges in {"runs": [[[4, 2]], [4, 4, 4]], "steps": [4, [[4, 1], [4, 2]]]}.items():
        path = out / store / "grids" / name
        path.mkdir(parents=True)
        (path.parent / "zarr.json").write_text(group)
        document = metadata(shape, chunks, "uint16", [BYTES, GZIP], 3)
        (path / "zarr.json").write_text(json.dumps(document))
        write("tensorstore", path, given, {})
        add(store, f"grids/{name}", "tensorstore", "<u2", given, document, "chunk_grid", ["zarr-python", "zarrs", "tensorstore"])
        grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": edges}}
        (path / "zarr.json").write_text(json.dumps(document | {"chunk_grid": grid}))

    # Text of variable length in shards; its values are listed as JSON.
    for name, codecs in {"text/in_shard": [shard([3], [{"name": "vlen-utf8"}, GZIP])], "text/nested": [shard([6], [shard([3], [{"name": "vlen-utf8"}, ZSTD], where="start")])]}.items():
        path = out / store / name
        path.mkdir(parents=True)
        (path.parent / "zarr.json").write_text(group)
        document = metadata([17], [12], "string", codecs, "")
        (path / "zarr.json").write_text(json.dumps(document))
        items = ["" if n == 4 else f"wörd {n} " + "µ" * n for n in range(17)]
        array = zarr.open_array(str(path), mode="r+")
        array[...] = np.array(items, dtype=array[...].dtype)
        assert read("zarr-python", path).tolist() == items
        truth = f"truth/{name.replace('/', '-')}.json"
        (out / truth).write_text(json.dumps({"items": items}, ensure_ascii=False))
        arrays.append({"id": f"zarr3/rare/{name}", "store": store, "array": name, "format": "zarr3", "container": "dir", "axes": "C", "truth": truth,
                       "dtype": "|O", "shape": [17], "writer": "zarr-python", "writer_version": versions["zarr-python"], "codec": codecs, "attrs": {}})  # fmt: skip
    # GDAL up to 3.10 leaves out the codec `bytes`, so that it alone reads what it writes.
    store = "zarr3/gdal.zarr"
    (out / store).mkdir(parents=True)
    for name, (dtype, options) in {
        "plain": ("<f4", {}),
        "dots": ("<u2", {"DIM_SEPARATOR": "."}),
        "gzip": ("<u2", {"COMPRESS": "GZIP"}),
        "blosc": ("<i4", {"COMPRESS": "BLOSC"}),
        "f": ("<f8", {"CHUNK_MEMORY_LAYOUT": "F"}),
        "f_gzip": ("|u1", {"CHUNK_MEMORY_LAYOUT": "F", "COMPRESS": "GZIP"}),
        "complex": ("<c8", {"COMPRESS": "GZIP"}),
    }.items():
        given = values(name, dtype, [2, 13, 11], {})
        by_gdal(out / store / name, given, options)
        document = json.loads((out / store / name / name / "zarr.json").read_text())
        add(store, f"{name}/{name}", "GDAL", dtype, given, {"codecs": None} | document, "", ["GDAL"])

    (out / "manifest.json").write_text(json.dumps({"stores": stores, "arrays": arrays}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
