"""Readers in Python, each a process of its own: they decode in process, and print seconds, bytes and a digest.

    workers.py tensorstore DRIVER PATH READERS [sum]    each chunk once
    workers.py wkw PATH READERS SHAPE [sum]             each block once
    workers.py zarr PATH READERS [sum]                  zarr-python, layer by layer of chunks, as many threads
    workers.py random-files DIRECTORY CHUNKS BYTES READS
    workers.py random-tensorstore PATH CACHE READS      4 KiB each, at the same places
"""

import os
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np

PIECE = 4096


def report(seconds, size, sums):
    from stores import digest

    print(seconds, size, digest(sums) if any(sums) else 0)


def each(places, readers, read, summed):
    """Reads all places in threads; `read` gives the bytes in C order, or anything with nbytes where they are not summed."""

    def one(place):
        data = read(place)
        return data.nbytes, zlib.crc32(data.tobytes(order="C")) if summed else 0

    start = time.perf_counter()
    with ThreadPoolExecutor(readers) as pool:
        done = list(pool.map(one, places))
    report(time.perf_counter() - start, sum(size for size, _ in done), [crc for _, crc in done])


def read_tensorstore(driver, path, readers, *summed):
    import tensorstore
    from stores import places, spec

    # Each chunk is read once: a cache would only cost, but for the indexes of shards.
    sharded = driver == "zarr3"
    limits = {
        "cache_pool": {"total_bytes_limit": (16 << 20) if sharded else 0},
        "data_copy_concurrency": {"limit": int(readers)},
        "file_io_concurrency": {"limit": int(readers)},
    }
    given = {**spec(driver, path), "recheck_cached_data": False}
    array = tensorstore.open(given, open=True, context=tensorstore.Context(limits)).result()
    # With N5's first axis, the fastest, last: so no reader has to turn the values round.
    array = array.T if driver == "n5" else array
    all_places = list(places(array.shape, array.chunk_layout.read_chunk.shape))
    each(all_places, int(readers), lambda place: array[place].read().result(), summed)


def read_wkw(path, readers, shape, *summed):
    import wkw

    data = wkw.Dataset.open(path)
    block = data.header.block_len
    shape = [int(n) for n in shape.split(",")]
    offsets = [tuple(block * i for i in reversed(index)) for index in np.ndindex(*[n // block for n in shape])]
    # x is the fastest: turned round it is the last axis, as in the files of a mount.
    each(offsets, int(readers), lambda offset: data.read(offset, (block, block, block))[0].T, summed)


def read_zarr(path, readers, *summed):
    import zarr
    from stores import places

    zarr.config.set({"threading.max_workers": int(readers)})
    array = zarr.open_array(path, mode="r")
    size, sums, seconds = 0, [], 0.0
    for begin in range(0, array.shape[0], array.chunks[0]):
        start = time.perf_counter()
        layer = array[begin : begin + array.chunks[0]]
        seconds += time.perf_counter() - start
        size += layer.nbytes
        if summed:
            sums += [zlib.crc32(layer[place].tobytes()) for place in places(layer.shape, array.chunks)]
    report(seconds, size, sums)


def offsets(chunks, chunk_bytes, reads):
    """Chunk and offset of each read, on values of two bytes."""
    rng = np.random.default_rng(11)
    return list(zip(rng.integers(0, chunks, reads).tolist(), (rng.integers(0, (chunk_bytes - PIECE) // 2, reads) * 2).tolist()))


def random_files(directory, chunks, chunk_bytes, reads):
    wanted = offsets(int(chunks), int(chunk_bytes), int(reads))
    sums = []
    start = time.perf_counter()
    for number, offset in wanted:
        file = os.open(f"{directory}/{number}", os.O_RDONLY)
        data = os.pread(file, PIECE, offset)
        os.close(file)
        sums.append(zlib.crc32(data))
    report(time.perf_counter() - start, len(wanted) * PIECE, sums)


def random_tensorstore(path, cache, reads):
    import tensorstore
    from stores import spec

    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": int(cache)}})
    array = tensorstore.open({**spec("zarr", path), "recheck_cached_data": False}, open=True, context=context).result()
    values = array.chunk_layout.read_chunk.shape[0]
    wanted = offsets(array.shape[0] // values, values * 2, int(reads))
    sums = []
    start = time.perf_counter()
    for number, offset in wanted:
        begin = number * values + offset // 2
        sums.append(zlib.crc32(array[begin : begin + PIECE // 2].read().result().tobytes()))
    report(time.perf_counter() - start, len(wanted) * PIECE, sums)


READERS = {
    "tensorstore": read_tensorstore,
    "wkw": read_wkw,
    "zarr": read_zarr,
    "random-files": random_files,
    "random-tensorstore": random_tensorstore,
}

if __name__ == "__main__":
    READERS[sys.argv[1]](*sys.argv[2:])
