"""Arrays of Zarr v3 by their documents, with values that tensorstore writes and reads."""

import errno
import json

import numpy as np
import pytest

from support.reading import tensorstore_of

FLAVOURS = pytest.mark.parametrize("flavour", [(), ("--zarr", "2"), ("--zarr", "3")], ids=["as-it-is", "2", "3"])
BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}
INDEX = [BYTES, {"name": "crc32c"}]


def shard(chunks, codecs=(BYTES,), **more):
    return {"name": "sharding_indexed", "configuration": {"chunk_shape": chunks, "codecs": list(codecs), "index_codecs": INDEX, **more}}


def document(shape, chunks, dtype="uint16", codecs=(BYTES,), fill=0, **more):
    return {
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": dtype, "fill_value": fill, "codecs": list(codecs),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, **more,
    }  # fmt: skip


def place(directory, made):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "zarr.json").write_text(json.dumps(made))
    return directory


def write(directory, values, where=...):
    tensorstore_of(directory)[where].write(values[where] if values.ndim else values).result()


def read(directory):
    return np.asarray(tensorstore_of(directory).read().result())


def numbers(shape, dtype="<u2"):
    return np.random.default_rng(7).integers(1, 200, shape).astype(dtype)


def refused(path, view, reason):
    """A document that cannot be shown gives an error, and the log has the reason."""
    with pytest.raises(OSError) as error:
        path.read_bytes()
    assert error.value.errno == errno.EOPNOTSUPP
    assert reason in view.text(), view.text()
