"""Many readers of chunks that together are many times the cache: what the daemon takes above the size that the cache may have.

The decoded chunks that the kernel reads by itself lie in files of memory, which count for no process: they are told by what
`Shmem` of the machine grows by, so that both can be seen.
"""

import shutil
import threading

import stores
from machine import drop_caches, preload, shared_memory
from rounds import OURS, files


def measure(bench):
    readers, chunk, cache = bench.sizes.memory
    values = (chunk << 20) // 2
    source = bench.room / "memory"
    source.mkdir()
    digest, _ = stores.row("zarr", source / "a", stores.ZSTD, readers, values)
    peaks, rows = [], []
    for _ in range(min(bench.rounds, 3)):
        drop_caches()
        preload(source)
        with bench.mount(source, "--cache-size", f"{cache}M") as view, Growth() as growth:
            seconds, *found = files(view / "a", readers, sum=True)
            bench.same("chunkmount, memory", [readers * chunk << 20, digest], found)
            peak, misses = view.status("VmHWM") / 1024, view.stats()["cache"]["misses"]
        peaks.append(peak - cache)
        rows.append({"VmHWM, MiB": peak, "files of memory, MiB": growth.most, "decodes per chunk": misses / readers, "seconds": seconds})
    what = f"memory above the cache, {readers} readers of chunks of {chunk} MiB, cache {cache} MiB"
    bench.add(what, {OURS: peaks}, "MiB", more=False, amount=True, notes=max(rows, key=lambda row: row["VmHWM, MiB"] + row["files of memory, MiB"]))
    shutil.rmtree(source)


class Growth:
    """The most that the files of memory of the machine grew by, looked at every 20 ms."""

    def __enter__(self):
        self.before, self.most, self.end = shared_memory(), 0.0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.end.wait(0.02):
            self.most = max(self.most, shared_memory() - self.before)

    def __exit__(self, *_):
        self.end.set()
        self.thread.join()
