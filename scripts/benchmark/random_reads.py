"""4 KiB at random places of many chunks, against tensorstore with a cache of the same size: one that holds all, and one that holds half."""

import shutil
import statistics

import stores
from machine import worker
from rounds import OURS, fresh

VALUES = 1 << 20


def measure(bench):
    chunks, reads = bench.sizes.random_chunks, bench.sizes.random_reads
    source = bench.room / "random"
    source.mkdir()
    stores.row("zarr", source / "a", stores.ZSTD, chunks, VALUES)
    total = chunks * VALUES * 2
    for label, cache in (("all", 2 * total), ("half of it", total // 2)):
        misses, digests = [], set()

        def through_mount():
            with bench.mount(source, "--cache-size", str(cache)) as view:
                seconds, _, digest = worker("random-files", view / "a", chunks, VALUES * 2, reads)
                misses.append(view.stats()["cache"]["misses"])
            digests.add(digest)
            return reads / float(seconds)

        def by_tensorstore():
            seconds, _, digest = worker("random-tensorstore", source / "a", cache, reads)
            digests.add(digest)
            return reads / float(seconds)

        contenders = {OURS: fresh(source, through_mount), "tensorstore": fresh(source, by_tensorstore)}
        what = f"4 KiB at random in {chunks} chunks of 2 MiB, cache holds {label}"
        touched = min(chunks, reads)
        rounds = min(bench.rounds, 3)
        bench.compare(what, contenders, "reads/s", more=True, rounds=rounds, notes=lambda _: {"reads": reads, "decodes per chunk": statistics.median(misses) / touched})
        bench.same(what, 1, len(digests))
    shutil.rmtree(source)
