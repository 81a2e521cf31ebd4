#!/usr/bin/env python3
"""Writes `tests/data/n5.tar.xz`: what is rare in N5, with the values that must be read from it.

* `labels.n5`: label multisets, made, downsampled and serialised by elf (python-elf 0.9.2 with bioimage-cpp) and written by z5py
  3.0.2. The truth is what elf reads. `s0-uncounted` has the blocks of `s0` as newer versions of imglib2-label-multisets write
  them, without the most frequent labels; there the truth is counted by numpy.
* `shards.n5`: datasets with `codecs`, shards among them, as the source of Java N5 4.0 reads and writes them (`DatasetAttributes`,
  `DefaultShardCodecInfo`, `ShardIndex`, `N5BlockCodecs`, `RawBlockCodecs`, `Crc32cChecksumCodec`, `NameConfigAdapter`), for which no
  program is on the package indexes: written here from that source, without chunkmount.

    python3 -m venv V && V/bin/pip install z5py==3.0.2 bioimage-cpp numpy scikit-image scikit-learn imageio h5py pooch
    V/bin/pip install --no-deps python-elf==0.9.2
    V/bin/python scripts/fixtures-n5.py
"""

import gzip
import itertools
import json
import struct
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import z5py
from elf.io.label_multiset_wrapper import LabelMultisetWrapper
from elf.label_multiset import create_multiset_from_labels, deserialize_multiset, downsample_multiset, serialize_multiset

ARCHIVE = Path(__file__).parents[1] / "tests" / "data" / "n5.tar.xz"
SHAPE, CHUNKS, SCALE = (7, 11, 9), (4, 5, 6), (2, 2, 2)


def blocks(shape, chunks):
    for index in np.ndindex(*(-(-n // c) for n, c in zip(shape, chunks))):
        yield index, tuple(slice(i * c, min((i + 1) * c, n)) for i, c, n in zip(index, chunks, shape))


def counted(block, shape):
    """The label with the highest count of each element, the lowest of several."""
    multiset = deserialize_multiset(block, shape)
    sizes = multiset.entry_sizes[multiset.entry_offsets]
    found = []
    for offset, size in zip(multiset.offsets.astype(int), sizes.astype(int)):
        ids, counts = multiset.ids[offset : offset + size], multiset.counts[offset : offset + size]
        found.append(ids[counts == counts.max()].min())
    return np.array(found, "u8").reshape(shape)


def label_multisets(out):
    rng = np.random.default_rng(5)
    container = z5py.File(str(out / "labels.n5"), "w")
    few = rng.integers(1, 2**40, 6, dtype="u8")
    labels = few[rng.integers(0, 6, SHAPE)]
    labels[:4, :5, :6] = 7
    labels[4:, 5:10, 6:] = 0

    def dataset(name, shape, compression):
        made = container.create_dataset(name, shape=shape, chunks=CHUNKS, dtype="uint8", compression=compression)
        made.attrs["isLabelMultiset"] = True
        made.attrs["maxId"] = int(labels.max())
        made.attrs["resolution"] = [4.0, 4.0, 40.0]
        return made

    half = tuple(-(-n // s) for n, s in zip(SHAPE, SCALE))
    s0, bare = dataset("data/s0", SHAPE, "gzip"), dataset("data/s0-uncounted", SHAPE, "raw")
    s1 = dataset("data/s1", half, "raw")
    s1.attrs["downsamplingFactors"] = [2, 2, 2]
    truth = {"data/s0-uncounted": np.zeros(SHAPE, "u8")}
    for index, where in blocks(SHAPE, CHUNKS):
        block = labels[where]
        if not block.any():
            continue  # as Paintera does: what is all background is not stored
        written = serialize_multiset(create_multiset_from_labels(block))
        s0.write_chunk(index, written, True)
        size = int(written[:4].view(">i4")[0])
        bare.write_chunk(index, np.concatenate([np.zeros(4, "u1"), written[4 + 8 * size :]]), True)
        truth["data/s0-uncounted"][where] = counted(written, block.shape)
    for index, where in blocks(half, CHUNKS):
        block = labels[tuple(slice(s.start * f, s.stop * f) for s, f in zip(where, SCALE))]
        smaller = downsample_multiset(create_multiset_from_labels(block), list(SCALE), 3)
        s1.write_chunk(index, serialize_multiset(smaller), True)
    for name in ("data/s0", "data/s1"):
        truth[name] = LabelMultisetWrapper(container[name])[...]
    assert np.array_equal(truth["data/s0"], labels)
    return {"labels.n5": truth}


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def encode(codecs, data):
    for codec in codecs:
        if codec["name"] == "gzip":
            data = gzip.compress(data, 6, mtime=0)
        elif codec["name"] == "crc32c":
            data += struct.pack("<I", crc32c(data))
        else:
            assert codec["name"] == "raw"
    return data


def header(shape):
    return struct.pack(f">HH{len(shape)}I", 0, len(shape), *shape)


def blob(codecs, values, origin, size, kept):
    """The bytes of a block or shard of `size` at `origin`, None where nothing of it is stored. Axes as N5 has them."""
    first, rest = codecs[0], codecs[1:]
    if first["name"] == "sharding_indexed":
        config = first["configuration"]
        part = config["chunk_shape"][::-1]
        grid = [s // p for s, p in zip(size, part)]
        entries, body = [], b""
        little = config["index_codecs"][0].get("configuration", {}).get("endian") == "little"
        headed = config["index_codecs"][0]["name"] == "n5bytes"
        start = (len(header([2] + grid)) if headed else 0) + 16 * int(np.prod(grid)) + 4 * (len(config["index_codecs"]) - 1)
        # The first axis is the fastest, in the index as in the order of the parts.
        for backwards in itertools.product(*(range(g) for g in grid[::-1])):
            at = [o + i * p for o, i, p in zip(origin, backwards[::-1], part)]
            piece = blob(config["codecs"], values, at, part, kept)
            if piece is None:
                entries += [2**64 - 1, 2**64 - 1]
                continue
            entries += [len(body) + (start if config["index_location"] == "start" else 0), len(piece)]
            body += piece
        if not body:
            return None
        index = struct.pack(f"{'<' if little else '>'}{len(entries)}Q", *entries)
        index = encode(config["index_codecs"][1:], (header([2] + grid) if headed else b"") + index)
        return index + body if config["index_location"] == "start" else body + index
    inside = values[tuple(slice(o, o + s) for o, s in zip(origin, size))]
    if inside.size == 0 or not kept(origin):
        return None
    if values.dtype == object:
        text = b"".join(t.encode() + b"\0" for t in inside.ravel(order="F"))
        head = struct.pack(f">HH{inside.ndim}II", 1, inside.ndim, *inside.shape, len(text))
        return head + encode(rest, text)
    if first["name"] == "n5bytes":
        return header(inside.shape) + encode(rest, inside.astype(values.dtype.newbyteorder(">")).tobytes(order="F"))
    little = first.get("configuration", {}).get("endian") == "little"
    whole = np.zeros(size, values.dtype.newbyteorder("<" if little else ">"))
    whole[tuple(slice(0, n) for n in inside.shape)] = inside
    return encode(rest, whole.tobytes(order="F"))


def shards(out):
    rng = np.random.default_rng(7)
    root = out / "shards.n5"
    root.mkdir()
    (root / "attributes.json").write_text('{"n5":"4.0.0"}')
    truth = {}
    n5bytes, gz, crc = {"name": "n5bytes"}, {"name": "gzip", "configuration": {"level": 6, "useZlib": False}}, {"name": "crc32c"}
    little = {"name": "bytes", "configuration": {"endian": "little"}}

    def sharded(inner, codecs, index, location):
        configuration = {"chunk_shape": inner[::-1], "codecs": codecs, "index_codecs": index, "index_location": location}
        return {"name": "sharding_indexed", "configuration": configuration}

    def dataset(name, shape, block, codecs, dtype="i4", kept=lambda at: True):
        if dtype == "string":
            values = np.array([f"{i}\u00e9" * (i % 4) for i in range(int(np.prod(shape)))], object).reshape(shape)
            fill = ""
        else:
            values = rng.integers(1, 2**14, shape).astype(dtype)
            fill = 0
        told = values.copy()
        (root / name).mkdir()
        name_of = {"i4": "int32", "u2": "uint16", "f8": "float64", "string": "string"}[dtype]
        members = {"dimensions": shape, "blockSize": block, "dataType": name_of, "codecs": codecs, "resolution": [4, 4, 40]}
        (root / name / "attributes.json").write_text(json.dumps(members))
        inner, codec = block, codecs[0]
        while codec["name"] == "sharding_indexed":
            inner = codec["configuration"]["chunk_shape"][::-1]
            codec = codec["configuration"]["codecs"][0]
        for at in itertools.product(*(range(0, n, b) for n, b in zip(shape, inner))):
            if not kept(list(at)):
                told[tuple(slice(a, a + b) for a, b in zip(at, inner))] = fill
        for index in itertools.product(*(range(-(-n // b)) for n, b in zip(shape, block))):
            data = blob(codecs, values, [i * b for i, b in zip(index, block)], block, kept)
            if data is not None:
                path = root / name / "/".join(map(str, index))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        truth[name] = told.T

    sparse = lambda at: at[0] < 6 and sum(at) % 5 != 2
    dataset("unsharded", [7, 5, 4], [3, 2, 4], [n5bytes, gz, crc])
    dataset("end", [13, 11, 5], [6, 8, 2], [sharded([3, 2, 1], [n5bytes, gz], [little, crc], "end"), {"name": "raw"}])
    dataset("start", [13, 11, 5], [6, 8, 2], [sharded([3, 2, 1], [n5bytes], [{"name": "raw-bytes"}], "start")], "f8", sparse)
    dataset("headless", [13, 11, 5], [6, 8, 2], [sharded([3, 2, 1], [little, gz], [little], "end")], "u2", sparse)
    dataset("headed-index", [13, 11, 5], [6, 8, 2], [sharded([3, 2, 1], [n5bytes], [n5bytes, crc], "start")])
    inner = sharded([2, 1, 3], [n5bytes, gz], [little, crc], "start")
    dataset("nested", [13, 11, 7], [8, 6, 6], [sharded([4, 2, 3], [inner], [little, crc], "end")], "i4", sparse)
    dataset("texts", [5, 4], [4, 4], [sharded([2, 4], [n5bytes], [little, crc], "end")], "string")
    return {"shards.n5": truth}


def main():
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        with tarfile.open(ARCHIVE, "w:xz") as tar:
            for path in sorted(Path(folder).rglob("*")):
                tar.add(path, path.relative_to(folder).as_posix(), recursive=False, filter=plain)


def plain(entry):
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


def write(out):
    truths = {**label_multisets(out), **shards(out)}
    told = {
        store: {name: {"shape": values.shape, "values": np.ravel(values).tolist()} for name, values in arrays.items()}
        for store, arrays in truths.items()
    }
    (out / "truth.json").write_text(json.dumps(told, separators=(",", ":")) + "\n")


main()
