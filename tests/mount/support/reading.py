"""Reads an array of a mounted tree with third-party readers and tells whether it is the truth, bit for bit.

Three readers: zarr-python, tensorstore, and `numpy.fromfile` on each chunk file with nothing but the metadata in hand.
A reader that does not know a data type is no verdict, as long as one of the libraries or the plain one agrees and none differs.
"""

import base64
import ctypes
import itertools
import json
import os
import re
import warnings

import numpy as np

NO_VERDICT = re.compile(
    r"Unsupported zarr dtype|No Zarr data type|not one of the supported data types|base64-encoded|Must specify a .field"
    r"|unsupported by this reader"
)


def numpy_dtype(name):
    """The numpy dtype of a Zarr v2 `dtype`, a structured one included."""
    if isinstance(name, str):
        return np.dtype(name)
    return np.dtype([(f[0], numpy_dtype(f[1]), *(tuple(s) for s in f[2:])) for f in name])


def numpy_dtype_v3(name):
    """The numpy dtype of a Zarr v3 `data_type`: the core's, and those that zarr-python has for types of Zarr v2."""
    if isinstance(name, str):
        raw = re.fullmatch(r"r(\d+)", name)
        return np.dtype(f"V{int(raw[1]) // 8}" if raw else {"bool": "?", "complex64": "c8", "complex128": "c16"}.get(name, name))
    kind, more = name["name"], name.get("configuration", {})
    if kind in ("null_terminated_bytes", "raw_bytes"):
        return np.dtype(f"{'S' if kind[0] == 'n' else 'V'}{more['length_bytes']}")
    if kind == "fixed_length_utf32":
        return np.dtype(f"U{more['length_bytes'] // 4}")
    if kind in ("numpy.datetime64", "numpy.timedelta64"):
        scale = "" if more["unit"] == "generic" else f"[{more['scale_factor']}{more['unit']}]"
        return np.dtype(f"{'M8' if 'date' in kind else 'm8'}{scale}")
    if kind in ("structured", "struct"):
        return np.dtype([(field[0], numpy_dtype_v3(field[1])) for field in more["fields"]])
    raise ValueError(f"data type {name} is unsupported by this reader")


def zarr_format(directory):
    return 3 if os.path.exists(os.path.join(str(directory), "zarr.json")) else 2


def numpy_fill(value, dtype):
    """A Zarr v2 or v3 `fill_value` as one element; null counts as zero, which is what every reader makes of it."""
    if value is None or dtype.kind == "O":
        return np.zeros((), dtype)[()]
    if dtype.names or dtype.kind in "SV":
        raw = base64.b64decode(value) if isinstance(value, str) else bytes(value or b"")
        return np.frombuffer(raw.ljust(dtype.itemsize, b"\0"), dtype)[0]
    if dtype.kind == "c":
        parts = value if isinstance(value, list) else [value, 0]
        return np.array(complex(*(float(str(part).replace("Infinity", "inf")) for part in parts)), dtype)[()]
    if dtype.kind in "mM":
        return np.array(-(2**63) if value == "NaT" else value, "i8").view(dtype.newbyteorder("="))[()]
    if dtype.kind == "f" and isinstance(value, str):
        if value.startswith("0x"):
            return np.frombuffer(int(value, 16).to_bytes(dtype.itemsize, "little"), dtype)[0]
        value = float(value.replace("Infinity", "inf"))
    return np.array(value, dtype)[()]


class View:
    """The metadata of a shown array, and nothing else, as a reader of plain files needs it."""

    def __init__(self, directory):
        self.directory = str(directory)
        if zarr_format(directory) == 3:
            with open(os.path.join(self.directory, "zarr.json"), encoding="utf-8") as file:
                self._v3(json.load(file))
        else:
            with open(os.path.join(self.directory, ".zarray"), encoding="utf-8") as file:
                self._v2(json.load(file))

    def _v2(self, meta):
        self.version, self.meta = 2, meta
        self.dtype = numpy_dtype(meta["dtype"])
        self.shape, self.chunks, self.order = tuple(meta["shape"]), tuple(meta["chunks"]), meta["order"]
        self.fill = meta["fill_value"]
        self.filters = meta["filters"] or []
        assert meta["compressor"] is None, f"the mount shows a compressor: {meta['compressor']}"
        assert not self.filters or self.dtype.kind == "O", f"the mount shows filters: {self.filters}"
        separator = meta.get("dimension_separator", ".")
        self.key = lambda index: separator.join(map(str, index)) if index else "0"

    def _v3(self, meta):
        self.version, self.meta = 3, meta
        assert meta["node_type"] == "array" and meta["chunk_grid"]["name"] == "regular"
        self.shape = tuple(meta["shape"])
        self.chunks = tuple(meta["chunk_grid"]["configuration"]["chunk_shape"])
        self.fill, self.filters, self.order = meta["fill_value"], [], "C"
        self.dtype = numpy_dtype_v3(meta["data_type"]).newbyteorder("<")
        for codec in meta["codecs"]:
            codec = {"name": codec} if isinstance(codec, str) else codec
            if codec["name"] == "transpose":
                assert codec["configuration"]["order"] == list(range(len(self.shape)))[::-1]
                self.order = "F"
            else:
                assert codec["name"] == "bytes", f"the mount shows a codec: {codec}"
                assert codec.get("configuration", {}).get("endian", "little") == "little"
        encoding = meta["chunk_key_encoding"]
        separator = encoding.get("configuration", {}).get("separator", "/" if encoding["name"] == "default" else ".")
        head = ["c"] if encoding["name"] == "default" else []
        self.key = lambda index: separator.join([*head, *map(str, index)]) or "0"

    @property
    def grid(self):
        return [range(-(-length // chunk)) for length, chunk in zip(self.shape, self.chunks)]

    @property
    def chunk_bytes(self):
        return int(np.prod(self.chunks, dtype=object)) * self.dtype.itemsize

    def path(self, index):
        return os.path.join(self.directory, self.key(tuple(index)))

    def stored(self):
        """The indices of the chunks that are there."""
        return [index for index in itertools.product(*self.grid) if os.path.exists(self.path(index))]

    def chunk(self, index):
        """One chunk, by numpy.fromfile; its file must have exactly the size of the block."""
        path = self.path(index)
        if self.dtype.kind == "O":
            return self._decoded(path)
        size = os.stat(path).st_size
        assert size == self.chunk_bytes, f"{path} has {size} bytes and a block has {self.chunk_bytes}"
        return np.fromfile(path, self.dtype).reshape(self.chunks, order=self.order)

    def _decoded(self, path):
        """Objects have no plain bytes: the encoding that the metadata names is undone by its own library."""
        import numcodecs

        with open(path, "rb") as file:
            values = file.read()
        for spec in reversed(self.filters):
            values = numcodecs.get_codec(dict(spec)).decode(values)
        return np.asarray(values, object).reshape(self.chunks, order=self.order)


def by_numpy(directory):
    view = View(directory)
    values = np.full(view.shape, numpy_fill(view.fill, view.dtype), view.dtype)
    for index in view.stored():
        inside = tuple(
            slice(i * chunk, min((i + 1) * chunk, length)) for i, chunk, length in zip(index, view.chunks, view.shape)
        )
        values[inside] = view.chunk(index)[tuple(slice(0, s.stop - s.start) for s in inside)]
    return values


def by_zarr(directory):
    import zarr

    version = zarr_format(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(zarr.open_array(str(directory), mode="r", zarr_format=version)[...])


def tensorstore_of(directory, **extra):
    import tensorstore

    driver = {2: "zarr", 3: "zarr3"}[zarr_format(directory)]
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(directory)}, "open": True, **extra}
    return tensorstore.open(spec).result()


def by_tensorstore(directory):
    view = View(directory)
    if view.version == 3 and not isinstance(view.meta["data_type"], str):
        raise ValueError("data types outside of Zarr v3's core are unsupported by this reader")
    if view.dtype.names:
        if any(view.dtype[name].names for name in view.dtype.names):
            raise ValueError("structures in structures are unsupported by this reader")
        values = np.zeros(view.shape, view.dtype)
        for name in view.dtype.names:
            values[name] = _strings(tensorstore_of(directory, field=name).read().result(), view.dtype[name], view.shape)
        return values
    return _strings(tensorstore_of(directory).read().result(), view.dtype, view.shape)


def _strings(values, dtype, shape):
    """tensorstore shows a string of n bytes as a further axis of n characters, which numpy 2 takes for empty strings."""
    values = np.asarray(values)
    if dtype.subdtype:
        return values
    if dtype.kind in "SV" and values.ndim == len(shape) + 1:
        if values.dtype.itemsize == 0:
            assert values.size == 0 or values.strides[-1] == 1
            raw = ctypes.string_at(values.ctypes.data, int(np.prod(values.shape)))
        else:
            raw = values.tobytes()
        return np.frombuffer(raw, dtype).reshape(shape)
    return values


READERS = {"zarr-python": by_zarr, "tensorstore": by_tensorstore, "numpy.fromfile": by_numpy}


def little(values):
    values = values.astype(values.dtype.newbyteorder("<")) if values.dtype.byteorder == ">" else values
    return np.ascontiguousarray(values)


def difference(got, want):
    """None when two arrays are the same bit for bit, byte order aside, else where they differ."""
    if got.size == want.size == 1:  # a scalar may be shown as one element along one axis
        got, want = got.reshape(-1), want.reshape(-1)
    if got.shape != want.shape:
        return f"shape {got.shape}, truth {want.shape}"
    if want.dtype.names:
        if got.dtype.names != want.dtype.names:
            return f"fields {got.dtype}, truth {want.dtype}"
        found = (difference(np.array(got[name]), np.array(want[name])) for name in want.dtype.names)
        return next((text for text in found if text), None)
    kinds = got.dtype.kind + want.dtype.kind
    if set(kinds) <= set("SUTO"):
        # One-byte characters and strings: readers disagree about the type, not about the characters.
        text = [np.array([v.decode("latin-1").rstrip("\0") if isinstance(v, bytes) else str(v) for v in a.ravel()]) for a in (got, want)]
        return None if (text[0] == text[1]).all() else f"strings {text[0][:5]}, truth {text[1][:5]}"
    got, want = little(got), little(want)
    plain = "biumMVS"  # types that a reader without them shows as others of the same bytes
    same_bytes = got.dtype.itemsize == want.dtype.itemsize and kinds[0] in plain and kinds[1] in plain and set(kinds) & set("bmMVS")
    if got.dtype != want.dtype and not same_bytes:
        return f"dtype {got.dtype}, truth {want.dtype}"
    if got.tobytes() == want.tobytes():
        return None
    width = f"V{got.dtype.itemsize}"
    wrong = np.flatnonzero(got.reshape(-1).view(width) != want.reshape(-1).view(width))
    first = int(wrong[0])
    where = tuple(int(i) for i in np.unravel_index(first, got.shape))
    return f"{len(wrong)} of {got.size} differ, first {where}: {got.ravel()[first]!r}, truth {want.ravel()[first]!r}"


def disagreements(directory, accepted, select=None):
    """What each reader has against the array at `directory`; empty when it is right.

    `accepted` are the value arrays that are right. `select` cuts the part out that is compared. At least one
    third-party reader must have read the array.
    """
    found, agreed = [], 0
    for name, reader in READERS.items():
        try:
            got = reader(directory)
        except Exception as error:  # a reader may fail in any way of its own
            text = f"{type(error).__name__}: {error}"
            if not NO_VERDICT.search(text):
                found.append(f"{name}: {text[:300]}")
            continue
        cut = select or (lambda values: values)
        differences = [difference(cut(got), cut(want)) for want in accepted]
        if all(differences):
            found.append(f"{name}: {differences[0]}")
        else:
            agreed += 1
    if not agreed and not found:
        found.append("no reader could read it")
    return found


def attributes(directory):
    """The attributes that a node shows."""
    if zarr_format(directory) == 3:
        with open(os.path.join(str(directory), "zarr.json"), encoding="utf-8") as file:
            return json.load(file).get("attributes", {})
    plain = os.path.join(str(directory), ".zattrs")
    if not os.path.exists(plain):
        return {}
    with open(plain, encoding="utf-8") as file:
        return json.load(file)
