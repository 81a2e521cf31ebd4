#!/usr/bin/env python3
"""Has third-party writers write stores, and third-party readers read them back.

    scripts/fixtures.py [--seed N] [--count N] OUT

writes into OUT the layout of `tests/data/stores.tar.xz`: stores, truth/*.npy and manifest.json. Shapes, chunks, types,
codecs, fill values, attributes and values follow from the seed. The truth of each array is what a reader that is not its
writer gets, and must be what was handed to the writer; else nothing is written at all. chunkmount has no part in it.

Writers: zarr-python 3, zarr-python 2 (an environment of its own, `.venv-zarr2`), tensorstore, netCDF4 and its netcdf-c,
and ncgen; archives by zipfile, zarr-python's ZipStore and Info-ZIP.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
ZARR2 = Path(os.environ.get("CHUNKMOUNT_ZARR2_PYTHON", ROOT / ".venv-zarr2" / "bin" / "python"))

INTEGERS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8"]
FLOATS = ["f4", "f8"]


class Writer:
    """Draws arrays and keeps the records of what was written."""

    def __init__(self, out, seed, count):
        self.out, self.count = Path(out), count
        self.random, self.numpy = random.Random(seed), np.random.default_rng(seed)
        self.arrays, self.stores = [], []

    def shape(self, most=4):
        """Shape and chunks: even and uneven grids, single chunks, chunks larger than the array."""
        rank = self.random.randint(1, most)
        shape = [self.random.randint(1, 14 if rank > 2 else 40) for _ in range(rank)]
        return shape, [self.random.choice([n, max(1, n // 2), max(1, n // 3), self.random.randint(1, n + 3)]) for n in shape]

    def values(self, shape, dtype):
        """Noise, ramps or constants, so that compressors take all of their ways."""
        dtype = np.dtype(dtype)
        size = int(np.prod(shape))
        kind = self.random.choice(["noise", "ramp", "constant", "sparse"])
        if kind == "noise":
            values = np.frombuffer(self.numpy.bytes(size * dtype.itemsize), dtype).copy()
        elif kind == "ramp":
            values = (np.arange(size) % 251).astype(dtype)
        elif kind == "constant":
            values = np.full(size, self.random.randint(0, 100)).astype(dtype)
        else:
            values = np.where(self.numpy.random(size) < 0.05, self.numpy.integers(0, 100, size), 0).astype(dtype)
        if dtype.kind == "b":
            values = self.numpy.random(size) < 0.5
        if dtype.kind in "fc":
            values = np.nan_to_num(values)  # the payload of a NaN is not kept by every writer
        return values.reshape(shape)

    def dtype(self, kinds, orders="<"):
        kind = self.random.choice(kinds)
        return kind if kind[1:] == "1" else self.random.choice(orders) + kind

    def attributes(self):
        word = lambda: "".join(self.random.choices("abcdefghij µ\"\\/", k=5))
        pool = [1, -2.5, True, None, word(), [1, 2, 3], {"inner": [word(), {"deep": 1}]}, 2**53, 1e-300]
        return {f"key {n} {word()}": self.random.choice(pool) for n in range(self.random.randint(0, 4))}

    def add(self, store, array, form, axes, given, truth, **fields):
        """Records an array whose reader agrees with what its writer was given."""
        given, truth = np.asarray(given), np.asarray(truth)
        little = truth.dtype.newbyteorder("<")
        same = given.shape == truth.shape and given.astype(little).tobytes() == truth.astype(little).tobytes()
        assert same, f"{store}/{array}: reader and writer disagree"
        name = f"truth/{len(self.arrays):04}-{form}-{os.getpid()}.npy"
        (self.out / "truth").mkdir(parents=True, exist_ok=True)
        np.save(self.out / name, np.ascontiguousarray(truth, little))
        record = {"id": f"{store}/{array}", "store": store, "array": array, "format": form, "container": "dir", "axes": axes,
                  "truth": name, "dtype": given.dtype.str, "shape": list(given.shape), **fields}  # fmt: skip
        self.arrays.append(record)
        if store not in [known["store"] for known in self.stores]:
            self.stores.append({"store": store, "format": form, "container": "dir"})

    def zipped(self, store, how, name):
        """An archive of a store, by Info-ZIP or zipfile; its arrays are copies of the store's."""
        target = f"zip/{name}.zip"
        (self.out / "zip").mkdir(exist_ok=True)
        source = self.out / store
        if how == "infozip":
            subprocess.run(["zip", "-q", "-r", (self.out / target).resolve(), "."], cwd=source, check=True)
        else:
            method = zipfile.ZIP_DEFLATED if how == "deflated" else zipfile.ZIP_STORED
            with zipfile.ZipFile(self.out / target, "w", method) as archive:
                files = [path for path in source.rglob("*") if path.is_file()]
                self.random.shuffle(files)
                prefix = source.name if how == "folder" else ""
                for path in files:
                    archive.write(path, os.path.join(prefix, path.relative_to(source)))
        form = next(known["format"] for known in self.stores if known["store"] == store)
        self.stores.append({"store": target, "format": form, "container": "zip"})
        for record in [r for r in self.arrays if r["store"] == store]:
            copy = {"id": f"{target}/{record['array']}", "store": target, "array": record["array"], "format": form}
            self.arrays.append({**copy, "container": "zip", "same_as": record["id"]})

    def part(self):
        return {"stores": self.stores, "arrays": self.arrays}


# zarr-python 2, in its own environment


def by_zarr_python_2(w):
    import numcodecs
    import zarr

    tool = {"writer": "zarr-python", "writer_version": f"{zarr.__version__} (numcodecs {numcodecs.__version__})"}
    blosc = [
        numcodecs.Blosc(cname=name, clevel=w.random.randint(1, 9), shuffle=shuffle)
        for name in ("blosclz", "lz4", "lz4hc", "zlib", "zstd", "snappy")
        for shuffle in (0, 1, 2)
        if name in numcodecs.blosc.list_compressors()
    ]
    compressors = [None, numcodecs.Zlib(1), numcodecs.GZip(5), numcodecs.BZ2(1), numcodecs.LZ4(), numcodecs.Zstd(3), numcodecs.LZMA(preset=1), *blosc]
    store = "zarr2/zarr_python_2.zarr"
    root = zarr.open_group(str(w.out / store), mode="w")
    root.attrs.update({"title": "fresh"})
    for n in range(w.count):
        shape, chunks = w.shape()
        dtype = w.dtype(INTEGERS + FLOATS + ["c8", "c16", "f2", "b1"], "<>")
        given = w.values(shape, dtype)
        filters = []
        kind = np.dtype(dtype).kind
        # Delta and Shuffle are defined for what a little-endian machine makes of native integers.
        if w.random.random() < 0.4 and kind in "iu" and not dtype.startswith(">"):
            filters = [w.random.choice([numcodecs.Delta(dtype), numcodecs.Shuffle(np.dtype(dtype).itemsize)])]
        elif w.random.random() < 0.3:
            filters = [w.random.choice([numcodecs.CRC32(), numcodecs.Adler32(), numcodecs.Fletcher32()])]
        name = f"group{n % 3}/array{n}"
        compressor = w.random.choice(compressors)
        array = root.create_dataset(
            name, shape=shape, chunks=chunks, dtype=dtype, compressor=compressor, filters=filters or None,
            order=w.random.choice("CF"), dimension_separator=w.random.choice("./"),
            fill_value=w.random.choice([None, 0, 1]) if kind != "b" else False, write_empty_chunks=w.random.random() < 0.7,
        )  # fmt: skip
        array[...] = given
        attributes = w.attributes()
        array.attrs.update(attributes)
        w.add(store, name, "zarr2", "C", given, array[...], attrs=attributes, chunks=chunks, codec=str(compressor), **tool)
    zarr.consolidate_metadata(str(w.out / store))
    w.zipped(store, "deflated", "zarr_python_2_deflated")
    w.zipped(store, "folder", "zarr_python_2_folder")

    for kind in (zarr.N5Store, zarr.N5FSStore):
        name = f"n5/zarr_python_{kind.__name__.lower()}.n5"
        target = kind(str(w.out / name))
        root = zarr.group(store=target, overwrite=True)
        codecs = [None, numcodecs.Zlib(1), numcodecs.GZip(5), numcodecs.BZ2(1), numcodecs.LZMA(preset=1), numcodecs.Zstd(1), numcodecs.LZ4(), blosc[1]]
        for n in range(w.count):
            shape, chunks = w.shape()
            dtype = w.dtype(INTEGERS + FLOATS)
            given = w.values(shape, dtype)
            path, codec = f"group{n % 2}/array{n}", w.random.choice(codecs)
            array = root.create_dataset(path, shape=shape, chunks=chunks, dtype=dtype, compressor=codec, fill_value=0, overwrite=True)
            array[...] = given
            attributes = w.attributes()
            array.attrs.update(attributes)
            # N5Store turns the axes when it writes, so the array as it was given has N5's axes reversed.
            w.add(name, path, "n5", "n5-reversed", given, array[...], attrs=attributes, chunks=chunks, codec=str(codec), **tool)


def by_zarr_python_3(w):
    import numcodecs
    import zarr

    store = "zarr2/zarr_python_3.zarr"
    root = zarr.open_group(str(w.out / store), mode="w", zarr_format=2)
    for n in range(w.count):
        shape, chunks = w.shape()
        dtype = w.dtype(INTEGERS + FLOATS + ["c8", "c16", "b1"], "<>")
        given = w.values(shape, dtype)
        codec = w.random.choice([None, numcodecs.Zstd(1), numcodecs.GZip(1), numcodecs.Zlib(6), numcodecs.Blosc(cname="lz4"), numcodecs.Blosc(cname="zstd", shuffle=2)])
        array = root.create_array(
            f"array{n}", shape=shape, chunks=chunks, dtype=dtype, compressors=codec, filters=None,
            order=w.random.choice("CF"), fill_value=False if dtype[1:] == "b1" or dtype == "b1" else w.random.choice([0, 1]),
            chunk_key_encoding={"name": "v2", "separator": w.random.choice("./")},
        )  # fmt: skip
        array[...] = given
        attributes = w.attributes()
        array.attrs.update(attributes)
        w.add(store, f"array{n}", "zarr2", "C", given, read_tensorstore("zarr", w.out / store / f"array{n}"), attrs=attributes,
              chunks=chunks, codec=str(codec), writer="zarr-python", writer_version=zarr.__version__)  # fmt: skip
    w.zipped(store, "infozip", "zarr_python_3_infozip")
    w.zipped(store, "stored", "zarr_python_3_stored")


def read_tensorstore(driver, path):
    import tensorstore

    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}}
    return np.asarray(tensorstore.open(spec, open=True).result().read().result())


def by_tensorstore(w):
    import tensorstore
    import zarr

    version = {"writer": "tensorstore", "writer_version": next(iter(tensorstore_version()), "")}
    compressions = [
        {"type": "raw"}, {"type": "gzip", "level": 3}, {"type": "gzip", "useZlib": True}, {"type": "bzip2"}, {"type": "xz", "preset": 1},
        {"type": "zstd"}, {"type": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}, {"type": "blosc", "cname": "zstd", "clevel": 1, "shuffle": 2},
    ]  # fmt: skip
    store = "n5/tensorstore.n5"
    names = []
    for n in range(w.count):
        shape, chunks = w.shape()
        dtype = w.dtype(INTEGERS + FLOATS)
        given, attributes = w.values(shape, dtype), w.attributes()
        metadata = {
            **attributes, "dimensions": shape, "blockSize": chunks, "dataType": np.dtype(dtype).name,
            "compression": w.random.choice(compressions),
        }  # fmt: skip
        spec = {"driver": "n5", "kvstore": {"driver": "file", "path": str(w.out / store / f"array{n}")}, "metadata": metadata}
        tensorstore.open(spec, create=True).result().write(given).result()
        names.append((f"array{n}", given, attributes, chunks, metadata["compression"]))
    # zarr-python 2 reads what tensorstore wrote.
    script = (
        "import sys, zarr, numpy, json\n"
        "root = zarr.open_group(zarr.N5FSStore(sys.argv[1]), mode='r')\n"
        "for name in sys.argv[3:]: numpy.save(sys.argv[2] + '/' + name + '.npy', numpy.ascontiguousarray(root[name][...]))\n"
    )
    back = w.out / f"back-{os.getpid()}"
    back.mkdir()
    (w.out / store / "attributes.json").write_text('{"n5": "2.0.0"}')
    subprocess.run([ZARR2, "-W", "ignore", "-c", script, w.out / store, back, *(name for name, *_ in names)], check=True)
    for name, given, attributes, chunks, codec in names:
        w.add(store, name, "n5", "n5-native", given, np.load(back / f"{name}.npy").T, attrs=attributes, chunks=chunks, codec=codec["type"], **version)
        (back / f"{name}.npy").unlink()
    back.rmdir()
    w.zipped(store, "stored", "tensorstore_n5")

    store = "zarr2/tensorstore.zarr"
    for n in range(w.count):
        shape, chunks = w.shape()
        dtype = w.dtype(INTEGERS + FLOATS + ["c8"], "<>")
        given = w.values(shape, dtype)
        compressor = w.random.choice([None, {"id": "zlib", "level": 1}, {"id": "bz2", "level": 1}, {"id": "zstd", "level": 1},
                                      {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}])  # fmt: skip
        metadata = {"shape": shape, "chunks": chunks, "dtype": np.dtype(dtype).str, "compressor": compressor, "order": w.random.choice("CF") if len(shape) > 1 else "C",
                    "dimension_separator": w.random.choice("./")}  # fmt: skip
        path = w.out / store / f"array{n}"
        spec = {"driver": "zarr", "kvstore": {"driver": "file", "path": str(path)}, "metadata": metadata}
        tensorstore.open(spec, create=True).result().write(given).result()
        w.add(store, f"array{n}", "zarr2", "C", given, zarr.open_array(str(path), mode="r", zarr_format=2)[...], attrs={}, chunks=chunks, **version)


def tensorstore_version():
    from importlib.metadata import version

    return [version("tensorstore")]


def by_netcdf(w):
    import netCDF4
    import zarr

    for mode, form in (("nczarr,file", "nczarr"), ("zarr,file", "zarr2")):
        store = f"nczarr/netcdf_{mode.split(',')[0]}.zarr"
        (w.out / "nczarr").mkdir(parents=True, exist_ok=True)
        dataset = netCDF4.Dataset(f"file://{(w.out / store).resolve()}#mode={mode}", "w", format="NETCDF4")
        dataset.title = "fresh"
        written = []
        for n in range(w.count):
            shape, chunks = w.shape(3)
            chunks = [min(c, s) for c, s in zip(chunks, shape)]
            kind = w.random.choice(INTEGERS + FLOATS)
            given = w.values(shape, "<" + kind if kind[1] != "1" else kind)
            dimensions = [f"d{n}_{axis}" for axis in range(len(shape))]
            group = dataset if n % 3 or mode == "zarr,file" else dataset.createGroup(f"group{n}")
            for name, size in zip(dimensions, shape):
                group.createDimension(name, size)
            how = w.random.choice([{}, {"compression": "zlib", "shuffle": False}, {"compression": "zlib", "shuffle": True}])
            variable = group.createVariable(f"v{n}", kind, dimensions, chunksizes=chunks, **how)
            variable.set_auto_maskandscale(False)
            variable[...] = given
            variable.units = w.random.choice(["m", "kg m-2", "1"])
            path = f"v{n}" if group is dataset else f"group{n}/v{n}"
            written.append((path, given, dimensions, kind, chunks, {"units": variable.units}, how))
        library = netCDF4.getlibversion().split()[0]
        dataset.close()
        again = netCDF4.Dataset(f"file://{(w.out / store).resolve()}#mode={mode}")
        for path, given, dimensions, kind, chunks, attributes, how in written:
            variable = again[path]
            variable.set_auto_maskandscale(False)
            truth = np.asarray(variable[...])
            if not how.get("shuffle"):  # netcdf-c's shuffle has an element size of 0, which only netcdf-c understands
                try:
                    shown = zarr.open_array(str(w.out / store / path), mode="r", zarr_format=2)[...]
                except ValueError:  # `<u1` is no name that zarr-python 3 knows
                    shown = truth
                assert np.array_equal(shown, truth), path
            w.add(store, path, form, "C", given, truth, attrs=attributes, chunks=chunks, nc_dims=dimensions, nc_type=kind, modes=mode,
                  writer="netcdf-c", writer_version=library)  # fmt: skip
        again.close()
        w.zipped(store, "infozip", f"netcdf_{form}")


def confirm(out, arrays):
    """Has other software read what zarr-python 2 wrote and read: tensorstore, or else zarr-python 3, if they know the codec."""
    import warnings

    import zarr

    warnings.simplefilter("ignore")
    readers = {
        "tensorstore": lambda path, form: read_tensorstore("n5", path).T if form == "n5" else read_tensorstore("zarr", path),
        "zarr-python 3": lambda path, form: zarr.open_array(str(path), mode="r", zarr_format=2)[...],
    }
    alone = 0
    ours = [array for array in arrays if array.get("writer_version", "").startswith("2.") and "same_as" not in array]
    for array in ours:
        array["confirmed_by"] = []
        truth = np.load(out / array["truth"])
        for name, reader in readers.items():
            try:
                got = np.asarray(reader(out / array["store"] / array["array"], array["format"]))
            except Exception:  # an unknown codec, data type or format
                continue
            got = np.ascontiguousarray(got, got.dtype.newbyteorder("<"))
            assert got.tobytes() == truth.tobytes(), f"{array['id']}: {name} reads other values"
            array["confirmed_by"].append(name)
        alone += not array["confirmed_by"]
    assert alone * 2 < len(ours), f"{alone} of {len(ours)} arrays have no second reader"


PARTS = {"zarr3": by_zarr_python_3, "tensorstore": by_tensorstore, "netcdf": by_netcdf, "zarr2": by_zarr_python_2}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--count", type=int, default=24, help="arrays for each writer and format")
    arguments.add_argument("--part", choices=PARTS, help="one writer only, by this interpreter; prints its part of the manifest")
    given = arguments.parse_args()
    if given.part:
        import warnings

        writer = Writer(given.out, given.seed, given.count)

        warnings.simplefilter("ignore")
        PARTS[given.part](writer)
        print(json.dumps(writer.part()))
        return
    out = Path(given.out)
    out.mkdir(parents=True, exist_ok=True)
    manifest = {"seed": given.seed, "stores": [], "arrays": []}
    for part in PARTS:
        python = ZARR2 if part == "zarr2" else sys.executable
        command = [python, __file__, "--part", part, "--seed", str(given.seed), "--count", str(given.count), out]
        run = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        for key, value in json.loads(run.stdout).items():
            manifest[key] += value
    confirm(out, manifest["arrays"])
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
