#!/usr/bin/env python3
"""Has `wkw` and `webknossos` write WEBKNOSSOS stores, and reads them back with `wkw`.

    python -m venv ENV; ENV/bin/pip install wkw==1.1.24 webknossos==4.3.3
    ENV/bin/python scripts/fixtures-wkw.py [--add DIRECTORY] OUT

writes into OUT stores, truth/*.npy and manifest.json in the layout of `tests/data/stores.tar.xz`. All follows from a seed. What only
older software wrote (spellings of `datasource-properties.json`, missing headers, downloaded annotations) is made from that by
renaming members, removing files and zipping; their manifest entries say so in `by_hand`. chunkmount has no part in it.
`--add` takes further stores with their truth from a directory of the same layout, and broken ones from its `bad`.
"""

import argparse
import json
import os
import shutil
import warnings
import zipfile
from pathlib import Path

import numpy as np
import wkw

warnings.simplefilter("ignore")

TYPES = ["uint8", "uint16", "uint32", "uint64", "float32", "float64", "int8", "int16", "int32", "int64"]
CODECS = {"raw": 1, "lz4": 2, "lz4hc": 3}
VERSION = "1.1.24"


class Out:
    def __init__(self, path):
        self.path, self.random = Path(path), np.random.default_rng(7)
        self.stores, self.arrays = [], []

    def values(self, shape, dtype, shift=0):
        """Few bits, so that the archive stays small; no two neighbours alike, so that no mixed up axis goes unseen."""
        size = int(np.prod(shape))
        dtype = np.dtype(dtype)
        values = (np.arange(size) * 7 + np.arange(size) // 5 + shift) % 101 + 1
        if dtype.kind == "f":
            values = values / 4 - 3
        elif dtype.kind == "i":
            values = values - 50
        return np.asarray(values).astype(dtype).reshape(shape, order="F")

    def store(self, name, container="dir"):
        self.stores.append({"store": name, "format": "wkw", "container": container})

    def add(self, store, array, container="dir", origin=None, shape=None, truth=None, source=None, **fields):
        """Records an array as `wkw` reads it, from its origin on: channel, x, y, z."""
        if truth is None:
            data = wkw.Dataset.open(str(source or self.path / store / array))
            truth = data.read(origin or (0, 0, 0), shape)
            truth = truth if truth.ndim == 4 else truth[None]
            data.close()
        name = f"truth/w{len(self.arrays):03}.npy"
        (self.path / "truth").mkdir(parents=True, exist_ok=True)
        np.save(self.path / name, truth)
        record = {
            "id": f"{store}/{array}".rstrip("/"), "store": store, "array": array, "format": "wkw", "container": container, "axes": "cxyz",
            "truth": name, "dtype": truth.dtype.str, "shape": list(truth.shape), "writer": "wkw (python)", "writer_version": VERSION,
            "reader": f"wkw {VERSION}", **fields,
        }  # fmt: skip
        if origin:
            record["region"] = {"origin": [0, *origin], "shape": list(truth.shape)}
        self.arrays.append(record)


def cubes(path, dtype, codec, block, side, channels, cubes, out):
    """An array with a file at each of `cubes`."""
    header = wkw.Header(np.dtype(dtype).type, num_channels=channels, block_type=CODECS[codec], block_len=block, file_len=side)
    data = wkw.Dataset.create(str(path), header)
    length = block * side
    for number, cube in enumerate(cubes):
        given = out.values((channels, length, length, length), dtype, 13 * number)
        data.write(tuple(i * length for i in cube), given if channels > 1 else given[0])
    data.close()


def matrix(out):
    """Every voxel type by every encoding, with all block and file lengths and one to four channels between them."""
    shapes = [(1, 8), (2, 4), (4, 2), (8, 1), (16, 1), (8, 2), (4, 1), (2, 2), (1, 2), (1, 1)]
    n = 0
    for codec in CODECS:
        for dtype in TYPES:
            block, side = shapes[n % len(shapes)] if codec != "lz4hc" else shapes[(n + 3) % len(shapes)]
            channels = (n // 3) % 4 + 1
            store = f"wkw/every_{codec}_{dtype}_{channels}ch_b{block}_f{side}"
            where = [(0, 0, 0), (1, 0, 0)] if n % 2 else [(0, 0, 0), (0, 1, 1)]
            cubes(out.path / store, dtype, codec, block, side, channels, where, out)
            length = block * side
            out.store(store)
            out.add(store, "", shape=tuple((max(c[a] for c in where) + 1) * length for a in range(3)), codec=codec, chunks=[channels] + [block] * 3, cubes=where)
            n += 1
    for store, block, side in (("wkw/large_blocks", 64, 1), ("wkw/many_blocks", 1, 16), ("wkw/usual_blocks", 32, 2)):
        cubes(out.path / store, "uint8", "lz4", block, side, 1, [(0, 0, 0)], out)
        out.store(store)
        out.add(store, "", shape=(block * side,) * 3, codec="lz4", chunks=[1] + [block] * 3, cubes=[(0, 0, 0)])


def headless(out):
    store = "wkw/no_header"
    cubes(out.path / store / "1", "uint16", "lz4", 4, 2, 1, [(0, 0, 0), (2, 1, 0)], out)
    out.store(store)
    out.add(store, "1", shape=(24, 16, 8), chunks=[1, 4, 4, 4], cubes=[(0, 0, 0), (2, 1, 0)], by_hand="header.wkw removed")
    (out.path / store / "1" / "header.wkw").unlink()


def annotation(out):
    """A downloaded annotation: files of one block in an archive in an archive."""
    staging = out.path / "staging"
    where = [(3, 4, 5), (3, 5, 5), (4, 4, 6)]
    cubes(staging / "1", "uint32", "lz4", 32, 1, 1, where, out)
    cubes(staging / "2-2-1", "uint32", "lz4", 32, 1, 1, [(1, 2, 5)], out)
    nml = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<things><volume id="1" location="data.zip" format="wkw"/></things>\n'
    (out.path / "zip").mkdir(exist_ok=True)
    for name, inner, outer in (("deflated", zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED), ("stored", zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED)):
        data = out.path / "data.zip"
        with zipfile.ZipFile(data, "w", inner) as archive:
            for path in sorted(p for p in staging.rglob("*") if p.is_file()):
                archive.write(path, path.relative_to(staging))
            # What was taken back: a bucket without anything.
            archive.writestr("1/z9/y9/x9.wkw", b"")
        store = f"zip/annotation_{name}.zip"
        with zipfile.ZipFile(out.path / store, "w", outer) as archive:
            archive.writestr("annotation.nml", nml)
            archive.write(data, "data_Volume.zip")
            archive.writestr("notes.zip", b"no archive at all")
        data.unlink()
        out.store(store, "zip")
        for mag, origin, shape in (("1", (96, 128, 160), (64, 64, 64)), ("2-2-1", (32, 64, 160), (32, 32, 32))):
            out.add(store, f"data_Volume.zip/{mag}", "zip", origin, shape, source=staging / mag, by_hand="zipped as a downloaded annotation")
    shutil.rmtree(staging)


def datasets(out):
    import webknossos as wk

    version = {"writer": "webknossos", "writer_version": "4.3.3"}
    store = "wkw/dataset"
    data = wk.Dataset(out.path / store, voxel_size_with_unit=wk.VoxelSize((11.24, 11.24, 28.0), wk.LengthUnit.NANOMETER), name="dataset")
    arrays = []
    for name, category, dtype, channels, form in (
        ("color", "color", "uint8", 3, "wkw"),
        ("em", "color", "uint8", 1, "wkw"),
        ("segmentation", "segmentation", "uint32", 1, "wkw"),
        ("probability", "color", "float32", 1, "wkw"),
        ("in_zarr", "color", "uint8", 1, "zarr"),
        ("in_zarr3", "color", "uint16", 1, "zarr3"),
    ):
        extra = {"largest_segment_id": 200} if category == "segmentation" else {}
        layer = data.add_layer(name, category, dtype_per_channel=dtype, num_channels=channels, data_format=form, **extra)
        mag = layer.add_mag(1, chunk_shape=(8, 8, 8), shard_shape=(8, 8, 8) if form == "zarr" else (16, 16, 16), compress=name != "em")
        # The box begins elsewhere, and within a block.
        given = out.values((channels, 21, 18, 11), dtype)
        mag.write(given if channels > 1 else given[0], absolute_offset=(19, 5, 3), allow_resize=True, allow_unaligned=True)
        arrays.append((name, "1", (40, 23, 14), channels))
        if form == "wkw":
            coarse = layer.add_mag(wk.Mag((2, 2, 1)), chunk_shape=(8, 8, 8), shard_shape=(16, 16, 16), compress=True)
            given = out.values((channels, 10, 9, 11), dtype)
            coarse.write(given if channels > 1 else given[0], absolute_offset=(20, 6, 3), allow_resize=True, allow_unaligned=True)
            arrays.append((name, "2-2-1", (20, 12, 14), channels))
    out.store(store)
    for name, mag, shape, channels in arrays:
        if name.startswith("in_"):
            truth = wk.Dataset.open(out.path / store).get_layer(name).get_mag(mag).read(absolute_bounding_box=wk.BoundingBox((0, 0, 0), shape))
            out.add(store, f"{name}/{mag}", truth=truth, other_format=True, reader="webknossos 4.3.3", **version)
        else:
            out.add(store, f"{name}/{mag}", shape=shape, **version)
    document = json.loads((out.path / store / "datasource-properties.json").read_text())
    document["dataLayers"] = [layer for layer in document["dataLayers"] if layer["dataFormat"] == "wkw"]

    def variant(name, what, change):
        """A copy with another document."""
        target = out.path / "wkw" / name
        shutil.copytree(out.path / store, target)
        for other in ("in_zarr", "in_zarr3", "probability"):
            shutil.rmtree(target / other)
        for zarr in (".zgroup", "zarr.json"):
            (target / zarr).unlink(missing_ok=True)
        changed = json.loads(json.dumps(document))
        changed["dataLayers"] = [layer for layer in changed["dataLayers"] if layer["name"] != "probability"]
        changed = change(changed, target)
        if changed is None:
            (target / "datasource-properties.json").unlink()
        else:
            (target / "datasource-properties.json").write_text(changed if isinstance(changed, str) else json.dumps(changed, indent=1))
        out.store(f"wkw/{name}")
        return f"wkw/{name}", what

    def record(store, what, paths):
        for path, like, shape in paths:
            out.add(store, path, shape=shape, source=out.path / "wkw/dataset" / like, by_hand=what, **version)

    def old(document, _):
        """The first spelling: a list of resolutions, three lengths in nanometers, and no formats of data."""
        for layer in document["dataLayers"]:
            layer["wkwResolutions"] = [
                {"resolution": 1 if mag["mag"] == [1, 1, 1] else mag["mag"], **({"cube_length": 16} if n else {"cubeLength": 16})}
                for n, mag in enumerate(layer.pop("mags"))
            ]
            del layer["dataFormat"]
            layer["num_channels"] = layer.pop("numChannels")
        document["scale"] = [11.24, 11.24, 28]
        return document

    usual = [("color/1", "color/1", (40, 23, 14)), ("em/1", "em/1", (40, 23, 14)), ("em/2-2-1", "em/2-2-1", (20, 12, 14))]
    record(*variant("dataset_old", "datasource-properties.json as it was before 2022", old), usual)

    # Without a box an array is as large as its files.
    whole = [("color/1", "color/1", (48, 32, 16)), ("em/2-2-1", "em/2-2-1", (32, 16, 16))]
    record(*variant("dataset_bare", "datasource-properties.json removed", lambda *_: None), whole)
    record(*variant("dataset_damaged", "datasource-properties.json cut", lambda document, _: json.dumps(document)[:300]), whole)

    def small(document, _):
        for layer in document["dataLayers"]:
            layer["boundingBox"].update(topLeft=[0, 0, 0], width=8, height=20, depth=14)
        return document

    grown = [("em/1", "em/1", (48, 20, 14)), ("em/2-2-1", "em/2-2-1", (32, 10, 14))]
    record(*variant("dataset_small_box", "a bounding box that leaves files out", small), grown)

    def moved(document, target):
        (target / "raw" / "em").mkdir(parents=True)
        (target / "em" / "1").rename(target / "raw" / "em" / "fine")
        for layer in document["dataLayers"]:
            if layer["name"] == "em":
                layer["mags"][0]["path"] = "raw/em/fine"
                layer["mags"][1]["path"] = "2-2-1"
            if layer["name"] == "segmentation":
                layer["mags"][0]["path"] = "https://example.org/segmentation/1"
                layer["mags"][1]["path"] = "../elsewhere/segmentation/2-2-1"
        return document

    places = [("raw/em/fine", "em/1", (40, 23, 14)), ("em/2-2-1", "em/2-2-1", (20, 12, 14)), ("segmentation/1", "segmentation/1", (48, 32, 16))]
    record(*variant("dataset_moved", "magnifications at paths of their own", moved), places)


def add(out, source):
    """Further stores of the same layout, with their truth, and broken ones."""
    manifest = json.loads((source / "manifest.json").read_text())
    records = {record["id"]: record for record in manifest["arrays"]}
    wanted = [s for s in manifest["stores"] if s["format"] == "wkw" and s["bytes"] < 2_000_000 and "bsdtar" not in s["store"]]
    for store in wanted:
        target = out.path / store["store"]
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / store["store"]).is_dir():
            shutil.copytree(source / store["store"], target)
        else:
            shutil.copy(source / store["store"], target)
        out.stores.append({key: store[key] for key in ("store", "format", "container")})
    names = {store["store"] for store in wanted}
    for record in (r for r in manifest["arrays"] if r["store"] in names):
        for _ in range(3):
            if record["store"] in names:
                break
            record = records[record["same_as"]]
        target = out.path / record["truth"]
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / record["truth"], target)
        out.arrays.append(record)
    bad = source.parent / "bad"
    if bad.is_dir():
        cases = [case for case in json.loads((bad / "manifest.json").read_text())["cases"] if case["format"] == "wkw"]
        for case in cases:
            shutil.copytree(bad / case["path"], out.path / "bad" / case["path"], symlinks=True)
            for work in case["must_work"]:
                (out.path / "bad" / "truth").mkdir(exist_ok=True)
                shutil.copy(bad / work["truth"], out.path / "bad" / work["truth"])
        (out.path / "bad" / "manifest.json").write_text(json.dumps({"cases": cases}, indent=1))


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--add", type=Path)
    arguments.add_argument("out")
    given = arguments.parse_args()
    out = Out(given.out)
    os.makedirs(given.out)
    for part in (matrix, headless, annotation, datasets):
        part(out)
    if given.add:
        add(out, given.add)
    (out.path / "manifest.json").write_text(json.dumps({"stores": out.stores, "arrays": out.arrays}, indent=1))


if __name__ == "__main__":
    main()
