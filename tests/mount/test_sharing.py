"""Many readers at once, the counters of `stats.json`, and bounds on memory and descriptors."""

import concurrent.futures
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from support.checks import check_store
from support.reading import View
from test_changes import CHUNKS, SHAPE, one_value, written


@pytest.fixture
def source(room):
    written(room / "source" / "a", 7)
    return room / "source"


def test_a_second_read_is_a_hit(source, mount):
    view = mount(source)
    path = view / "a" / "0.0.0"
    one_value(path.read_bytes())
    first = view.stats()
    drop_page_cache(path)
    one_value(path.read_bytes())
    second = view.stats()
    assert first["cache"]["misses"] == second["cache"]["misses"] == 1, "decoded once"
    assert second["cache"]["hits"] > first["cache"]["hits"]
    assert first["store"] == second["store"], "the source is not asked again"
    counted = second["arrays"]["a"]
    encoded = (source / "a" / "0.0.0").stat().st_size
    assert (counted["misses"], counted["errors"]) == (1, 0)
    assert (counted["bytes_in"], counted["bytes_out"]) == (encoded, int(np.prod(CHUNKS)) * 2)
    assert second["decode"]["bytes_out"] == counted["bytes_out"] and counted["decode_seconds"] > 0
    assert second["errors"] == 0


def test_an_error_is_counted_and_logged_once(source, mount):
    whole = (source / "a" / "0.0.0").read_bytes()
    (source / "a" / "0.0.0").write_bytes(whole[:1000])
    view = mount(source)
    for _ in range(5):
        with pytest.raises(OSError):
            (view / "a" / "0.0.0").read_bytes()
    one_value((view / "a" / "1.0.0").read_bytes())
    assert view.stats()["errors"] >= 1
    assert len([line for line in view.text().splitlines() if "a/0.0.0" in line]) == 1, view.text()


def drop_page_cache(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.mark.parametrize("readers", [16, 64])
def test_many_readers_of_one_cold_chunk_cause_one_decode(source, readers, mount):
    view = mount(source)
    gate = threading.Barrier(readers)

    def read(_):
        gate.wait(30)
        return one_value((view / "a" / "0.0.0").read_bytes())

    with concurrent.futures.ThreadPoolExecutor(readers) as pool:
        assert set(pool.map(read, range(readers))) == {7}
    assert view.stats()["arrays"]["a"]["misses"] == 1


def test_readers_of_everything_at_once(corpus, mount):
    """Eight threads read each chunk of a store in an order of their own, and all read the same."""
    store = "zarr2/compressors.zarr"
    view = mount(corpus.path(store), "--cache-size", "1M")
    paths = []
    for record in corpus.records[store]:
        shown = View(view / record.array)
        paths += [shown.path(index) for index in shown.stored()]

    def read(number):
        order = np.random.default_rng(number).permutation(len(paths))
        return {paths[i]: open(paths[i], "rb").read() for i in order}

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(read, range(8)))
    assert all(result == results[0] for result in results)
    check_store(corpus, store, view)


def test_memory_is_bounded_by_the_cache_and_the_reads_at_hand(room, mount):
    """128 MiB of blocks through a cache of 8 MiB."""
    for number in range(16):
        written(room / "source" / f"a{number}", number)
    view = mount(room / "source", "--cache-size", "8M")
    before = view.status("VmHWM")

    def read(number):
        for chunk in range(SHAPE[0] // CHUNKS[0]):
            assert one_value((view / f"a{number}" / f"{chunk}.0.0").read_bytes()) == number

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(16)))
    assert view.status("VmHWM") - before < 96 << 10


def test_many_open_files_cost_no_descriptors_of_the_source(source, mount):
    """A thousand open handles, under the usual limit of 1024 descriptors."""
    view = mount(source, prefix=("prlimit", "--nofile=256"))
    handles = [os.open(view / "a" / f"{number % 4}.0.0", os.O_RDONLY) for number in range(900)]
    try:
        assert {os.pread(handle, 2, 0) for handle in handles} == {b"\x07\x00"}
    finally:
        for handle in handles:
            os.close(handle)
    for _ in range(3000):
        os.close(os.open(view / "a" / "0.0.0", os.O_RDONLY))
    assert len(os.listdir(f"/proc/{view.process.pid}/fd")) < 64


def test_an_interrupted_reader_dies(source, mount):
    view = mount(source)
    reader = subprocess.Popen([sys.executable, "-c", f"while True: open({str(view / 'a' / '0.0.0')!r}, 'rb').read()"])
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            reader.wait(0.5)
    finally:
        reader.terminate()
        reader.wait(5)
    assert one_value((view / "a" / "0.0.0").read_bytes()) == 7
