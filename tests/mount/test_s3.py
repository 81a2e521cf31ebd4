"""Stores in buckets: the same values as on disk, with few requests, from a real server that checks signatures."""

import errno
import json
import os
import subprocess
import time

import numpy as np
import pytest

from support import data
from support.checks import check_groups, check_store
from support.mounting import binary
from support.reading import by_zarr
from support.s3 import Real, clean_env

CORPUS = data.stores()
# One of each dialect and container; the whole list would say little more.
STORES = sorted(CORPUS.stores)


@pytest.fixture(scope="module")
def real():
    server = Real()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def bucket(real):
    """Uploads a store once, and says where it is."""
    done = set()

    def upload(store):
        if store not in done:
            real.tell("upload", "bucket", f"stores/{store}", CORPUS.path(store))
            done.add(store)
        return f"s3://bucket/stores/{store}"

    return upload


@pytest.fixture
def s3(mount, real):
    """Mounts an address of the real server as a user who may do everything there."""

    def make(source, *options, user="all", **more):
        return mount(source, "--endpoint-url", real.url, *options, env=real.env(user, **more))

    return make


def fails(source, *options, env, within=30):
    """The exit status and the text of a mount that must fail."""
    start = time.monotonic()
    done = subprocess.run([binary(), source, "/nowhere", "-f", *options], env=env, capture_output=True, text=True, timeout=100)
    assert time.monotonic() - start < within
    assert done.stderr.count("\n") == 1, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("store", STORES)
def test_values(store, bucket, s3):
    view = s3(bucket(store))
    check_store(CORPUS, store, view)
    check_groups(CORPUS, store, view)


def small_array(real, key, shape=(40, 40), chunks=(10, 10), separator="."):
    """A small array that is written by hand."""
    values = np.arange(np.prod(shape), dtype="<i4").reshape(shape)
    document = {
        "zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<i4", "compressor": None, "filters": None,
        "fill_value": 0, "order": "C", "dimension_separator": separator,
    }
    return values, document
