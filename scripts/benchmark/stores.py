"""The data that is measured, written by other software: volumes and rows of chunks, in every format, with their digests."""

import struct
import subprocess
import zipfile
import zlib
from pathlib import Path

import numpy as np
from machine import PEERS

ZLIB = {"id": "zlib", "level": 6}
ZSTD = {"id": "zstd", "level": 3}
# What Zarr version 3 calls its codecs.
V3 = {
    "raw": [{"name": "bytes", "configuration": {"endian": "little"}}],
    "gzip": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "gzip", "configuration": {"level": 6}}],
    "zstd": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {"level": 3}}],
}
GROUPS = {"n5": ("attributes.json", '{"n5": "2.0.0"}'), "zarr": (".zgroup", '{"zarr_format": 2}'), "zarr3": ("zarr.json", '{"zarr_format": 3, "node_type": "group"}')}


def volume(shape, start=0, dtype="<u2"):
    """An image as microscopes give it: smooth structures with noise in the low bits."""
    rng = np.random.default_rng([1, start])
    axes = [np.sin(np.arange(begin, begin + n) / period) for begin, n, period in zip((start, 0, 0), shape, (17, 23, 31))]
    smooth = axes[0][:, None, None] * axes[1][None, :, None] + axes[2][None, None, :]
    scale, noise = (2000, 64) if np.dtype(dtype).itemsize == 2 else (50, 4)
    return (smooth * scale + 3 * scale + rng.integers(0, noise, shape)).astype(dtype)


def digest(sums):
    """One number for the CRC-32 of each chunk, as bench-peers makes it."""
    return zlib.crc32(b"".join(struct.pack("<I", one) for one in sums))


def places(shape, chunks):
    """The chunks of an array, the last axis fastest, as slices."""
    for index in np.ndindex(*[-(-n // c) for n, c in zip(shape, chunks)]):
        yield tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(index, chunks, shape))


def digest_of(values, chunks):
    return digest(zlib.crc32(values[place].tobytes()) for place in places(values.shape, chunks))


def spec(driver, path):
    """What tensorstore opens; a zip archive holds the array `a`."""
    store = {"driver": "file", "path": str(path)}
    if str(path).endswith(".zip"):
        store = {"driver": "zip", "base": store, "path": "a/"}
    return {"driver": driver, "kvstore": store}


def create(driver, path, codec, shape, chunks, dtype, shard=None):
    """An empty array of tensorstore, its fastest axis last."""
    made = spec(driver, path)
    kind = np.dtype(dtype)
    if driver == "n5":
        # N5's first axis is the fastest: its axes are given reversed.
        made["metadata"] = {"dimensions": shape[::-1], "blockSize": chunks[::-1], "dataType": kind.name, "compression": codec}
    elif driver == "zarr":
        made["metadata"] = {"shape": shape, "chunks": chunks, "dtype": kind.str, "compressor": codec}
    else:
        codecs = V3[codec]
        if shard:
            inner = {"chunk_shape": chunks, "codecs": codecs, "index_codecs": [*V3["raw"], {"name": "crc32c"}], "index_location": "end"}
            codecs = [{"name": "sharding_indexed", "configuration": inner}]
        grid = {"name": "regular", "configuration": {"chunk_shape": shard or chunks}}
        made["metadata"] = {"shape": shape, "chunk_grid": grid, "data_type": kind.name, "codecs": codecs}
    import tensorstore

    array = tensorstore.open(made, create=True).result()
    if driver in GROUPS:
        name, text = GROUPS[driver]
        (Path(path).parent / name).write_text(text)
    return array.T if driver == "n5" else array


def row(driver, path, codec, count, values, dtype="<u2"):
    """An array of one axis with `count` chunks of `values` values, all different; gives the digests of its chunks and of their
    first 4 KiB."""
    array = create(driver, path, codec, [count * values], [values], dtype)
    plane = (1, -(-values // 1024), 1024)
    sums, heads = [], []
    for number in range(count):
        chunk = volume(plane, number, dtype).reshape(-1)[:values]
        array[number * values : (number + 1) * values].write(chunk).result()
        data = chunk.tobytes()
        sums.append(zlib.crc32(data))
        heads.append(zlib.crc32(data[:4096]))
    return digest(sums), digest(heads)


def n5_lz4(path, image, chunks):
    """What tensorstore does not write, the crate `n5` does."""
    raw = path.with_name("raw") / "a"
    create("n5", raw, {"type": "raw"}, list(image.shape), chunks, image.dtype).write(image).result()
    subprocess.run([PEERS, "n5-lz4", raw, path], check=True)
    subprocess.run(["rm", "-r", raw.parent], check=True)


def cubes(path, codec, image, block):
    """A WEBKNOSSOS array: files that are cubes of blocks, of an image whose last axis is x."""
    import wkw

    side = 1
    while side < 8 and image.shape[0] % (2 * side * block) == 0:
        side *= 2
    header = wkw.Header(np.uint16, version=1, block_type={"raw": 1, "lz4": 2}[codec], block_len=block, file_len=side)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = wkw.Dataset.create(str(path), header)
    for place in places(image.shape, [side * block] * 3):
        data.write(tuple(axis.start for axis in reversed(place)), np.asfortranarray(image[place].T))
    data.close()


def archive(directory, target):
    """A zip of a directory, its entries stored."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as out:
        for file in sorted(path for path in directory.rglob("*") if path.is_file()):
            out.write(file, file.relative_to(directory))


def empty_array(many):
    """The document of an array of `many` chunks of one byte."""
    return {"zarr_format": 2, "shape": [many], "chunks": [1], "dtype": "|u1", "compressor": None, "filters": None, "order": "C", "fill_value": 0}
