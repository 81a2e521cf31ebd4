"""Latency of a distant server is hidden, and what was read is kept: counted by servers that are slow on purpose."""

import os
import shutil
import signal
import subprocess
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr

from support.mounting import wait_for
from support.reading import by_zarr
from support.s3 import fault, silent
from test_s3 import double, put, small_array  # noqa: F401

# Seconds that each request takes longer: enough for many to come meanwhile, on a busy machine too.
DELAY = 0.2


class Slow:
    """A server that takes its time, and how many requests it had at once whenever one came."""

    def __init__(self):
        self.lock, self.now, self.at_once = threading.Lock(), 0, []

    def __call__(self, request):
        with self.lock:
            self.now += 1
            self.at_once.append(self.now)
        time.sleep(DELAY)
        with self.lock:
            self.now -= 1
        return False


@pytest.fixture
def far(double):
    """A mounted array of 16 by 16 chunks, on a server that takes its time."""
    values, files = small_array((160, 160), (10, 10))
    put(double, "a", files)
    double.slow = Slow()
    double.faults.append(double.slow)
    double.values = values
    double.names = [f"{i}.{j}" for i in range(16) for j in range(16)]
    return double


def in_order(view, names):
    return subprocess.run(["cat", *names], cwd=view, check=True, capture_output=True, timeout=100).stdout


def test_chunk_after_chunk_is_fetched_many_at_a_time(far):
    want = b"".join(far.objects[f"a/{name}"] for name in far.names)
    with far.mount("s3://b/a") as view:
        far.slow.at_once.clear()
        assert in_order(view.where, far.names) == want
    # Not only for once: half of all requests find so many others.
    assert np.median(far.slow.at_once) >= 16


def test_reading_ahead_asks_for_nothing_twice(far):
    view = far.mount("s3://b/a")
    before = far.count()
    in_order(view.where, far.names)
    assert far.count() - before == {"GET": 256}


@pytest.mark.parametrize("kind", ["archive", "shard"])
def test_neighbours_in_one_object_are_fetched_together(kind, double, room):
    """256 chunks in one object, each of some hundred bytes: read in order, that takes far fewer requests."""
    if kind == "archive":
        values, files = small_array((160, 160), (10, 10))
        with zipfile.ZipFile(room / "x.zip", "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
            archive.writestr("other", os.urandom(9 << 20))
        double.put("x.zip", (room / "x.zip").read_bytes())
        source, names = "s3://b/x.zip", [f"{i}.{j}" for i in range(16) for j in range(16)]
    else:
        values = np.arange(160 * 160, dtype="<i4").reshape(160, 160)
        zarr.create_array(room / "a", data=values, chunks=(10, 10), shards=(160, 160), zarr_format=3)
        double.upload("a", room / "a")
        source, names = "s3://b/a", [f"c/{i}/{j}" for i in range(16) for j in range(16)]
    view = double.mount(source)
    os.stat(view / names[0])
    double.faults.append(Slow())
    double.log.clear()
    got = in_order(view.where, names)
    want = values.reshape(16, 10, 16, 10).swapaxes(1, 2)
    assert np.array_equal(np.frombuffer(got, "<i4").reshape(16, 16, 10, 10), want)
    assert double.count()["GET"] <= 128, double.count()


def test_reads_are_concurrent_beyond_the_threads(far):
    view = far.mount("s3://b/a", "--threads", "2")
    names = np.random.default_rng(1).permutation(far.names)[:120]
    far.slow.at_once.clear()
    with ThreadPoolExecutor(len(names)) as pool:
        got = list(pool.map(lambda name: (view / name).read_bytes(), names))
    assert got == [far.objects[f"a/{name}"] for name in names]
    assert np.median(far.slow.at_once) >= 16


def test_silent_objects_leave_the_others_readable(double):
    values, files = small_array((100, 100), (10, 10))
    put(double, "a", files)
    view = double.mount("s3://b/a", "--timeout", "4")
    double.faults += [fault(silent, kinds="GET", key=f"a/{i}.{j}") for i in range(1, 5) for j in range(10)]
    readers = [subprocess.Popen(["cat", f"{i}.{j}"], cwd=view.where, stderr=-3) for i in range(1, 5) for j in range(10)]
    time.sleep(0.5)
    start = time.monotonic()
    for j in range(10):
        assert np.array_equal(np.fromfile(view / f"9.{j}", "<i4").reshape(10, 10), values[90:, j * 10 : j * 10 + 10])
    assert time.monotonic() - start < 2
    # Those that wait can be ended, at the latest when their time is over.
    for reader in readers[:20]:
        reader.send_signal(signal.SIGINT)
    assert all(reader.wait(10) != 0 for reader in readers)
    assert time.monotonic() - start < 8


def kept(view):
    return view.stats()["disk"]


def test_a_second_mount_begins_warm(double, room):
    values, files = small_array((100, 100), (10, 10))
    put(double, "a", files)
    options = ["--disk-cache", room / "kept", "--disk-cache-size", "64M"]
    with double.mount("s3://b/a", *options) as view:
        assert (by_zarr(view / "") == values).all()
        assert kept(view)["written"] == 102 and kept(view)["hits"] == 0
    double.log.clear()
    with double.mount("s3://b/a", *options) as view:
        assert (by_zarr(view / "") == values).all()
        assert double.count() == {"LIST": 1} and kept(view)["hits"] >= 102
    # Another version is another entry.
    double.objects["a/3.4"] = np.full((10, 10), 7, "<i4").tobytes()
    double.log.clear()
    with double.mount("s3://b/a", *options) as view:
        assert (np.fromfile(view / "3.4", "<i4") == 7).all()
        assert double.count() == {"LIST": 1, "GET": 1}


def damaged(folder):
    """Every file of a cache, in turn cut, emptied, overwritten and gone."""
    number = 0
    for here, _, names in os.walk(folder):
        for name in sorted(names):
            path = os.path.join(here, name)
            size = os.path.getsize(path)
            number += 1
            if number % 4 == 0:
                os.truncate(path, size // 2)
            elif number % 4 == 1:
                os.truncate(path, 0)
            elif number % 4 == 2:
                with open(path, "r+b") as file:
                    file.seek(size // 3)
                    file.write(os.urandom(16))
            else:
                os.remove(path)


def test_a_damaged_folder_costs_time_and_nothing_else(double, room):
    values, files = small_array((100, 100), (10, 10))
    put(double, "a", files)
    options = ["--disk-cache", room / "kept"]
    for _ in range(3):
        with double.mount("s3://b/a", *options) as view:
            assert (by_zarr(view / "") == values).all()
        damaged(room / "kept")


def test_mounts_share_a_folder_and_one_is_killed(double, room):
    values, files = small_array((200, 200), (10, 10))
    put(double, "a", files)
    options = ["--disk-cache", room / "kept", "--disk-cache-size", "2M"]
    first, second = [double.mount("s3://b/a", *options) for _ in range(2)]
    failed = []

    def read(view, names):
        for name in names:
            try:
                got = (view / name).read_bytes()
            except OSError:
                continue
            if got != double.objects[f"a/{name}"]:
                failed.append(name)

    names = sorted(name for name in files if name[0] != ".")
    readers = [threading.Thread(target=read, args=(view, names)) for view in (first, second)]
    for reader in readers:
        reader.start()
    time.sleep(0.3)
    first.kill()
    for reader in readers:
        reader.join(60)
    assert not failed
    assert (by_zarr(second / "") == values).all()
    with double.mount("s3://b/a", *options) as view:
        assert (by_zarr(view / "") == values).all()
        wait_for(lambda: kept(view)["held"] <= 2 << 20, 10, "the bound holds")
    used = sum(os.stat(os.path.join(here, name)).st_blocks * 512 for here, _, all in os.walk(room / "kept") for name in all)
    assert used <= (2 << 20) * 17 // 16
    shutil.rmtree(room / "kept")


def test_an_archive_begins_warm_too(double, room):
    from test_s3 import CORPUS
    from support import data

    double.put("x.zip", CORPUS.path("zip/many_entries.zip").read_bytes())
    options = ["--disk-cache", room / "kept"]
    with double.mount("s3://b/x.zip", *options) as view:
        name = data.entries(view)[-1]
        content = (view / name).read_bytes()
    double.log.clear()
    with double.mount("s3://b/x.zip", *options) as view:
        assert (view / name).read_bytes() == content
        # Which version it is must be asked.
        assert double.count() == {"HEAD": 1}


def test_equal_names_in_two_buckets_are_two_objects(double, room):
    values, files = small_array()
    put(double, "a", files)
    tag = {"ETag": '"the same"', "Last-Modified": "Mon, 02 Nov 2026 10:00:00 GMT"}

    def of_the_bucket(request):
        if not request.key.endswith("/0.0") or request.kind == "LIST":
            return False
        content = bytes([7 if request.handler.path.startswith("/c/") else 8]) * 400
        request.send(200, content, tag, length=len(content))
        return True

    def listing(request):
        return request.kind == "LIST" and (request.error(403, "AccessDenied") or True)

    double.faults += [of_the_bucket, listing]
    for bucket, byte in [("b", 8), ("c", 7), ("b", 8)]:
        with double.mount(f"s3://{bucket}/a", "--disk-cache", room / "kept") as view:
            assert (view / "0.0").read_bytes() == bytes([byte]) * 400
