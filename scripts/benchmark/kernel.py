"""Chunks of 2 MiB of raw bytes, so that reading the source is all of the decoding: what the way through the kernel takes beside that,
against a tmpfs."""

import shutil

import stores
from machine import copied, drop_caches, memory_room, preload
from rounds import OURS, RECYCLED, files, plural
from warm import against_copies

VALUES = 1 << 20
SOURCE = "the source's files"


def measure(bench):
    count = bench.sizes.kernel
    size = count * VALUES * 2
    source = bench.room / "kernel"
    source.mkdir()
    digest, _ = stores.row("zarr", source / "a", None, count, VALUES)
    wanted = (size, digest)
    shared = memory_room(size)
    try:
        with bench.mount(source) as view:
            bench.same("chunkmount, kernel", wanted, files(view / "a", 2, sum=True)[1:])
            if shared:
                bench.same("tmpfs", wanted, files(copied(view / "a", shared / "a"), 2, sum=True)[1:])
        for readers in bench.sizes.readers:
            passed = []

            def each_new():
                drop_caches()
                preload(source)
                with bench.mount(source, *RECYCLED) as view:
                    seconds = files(view / "a", readers)[0]
                    passed.append(view.stats()["passthrough"])
                return size / seconds / 1e9

            contenders = {
                OURS: each_new,
                "tmpfs": (lambda: size / files(shared / "a", readers)[0] / 1e9) if shared else None,
                SOURCE: lambda: size / files(source / "a", readers)[0] / 1e9,
            }
            what = f"kernel, raw chunks of 2 MiB, each new, {plural(readers)}"
            bench.compare(what, contenders, "GB/s", more=True, notes=lambda medians: aside(medians) | passthrough(passed[-1], count))
    finally:
        if shared:
            shutil.rmtree(shared)
    with bench.mount(source, "--cache-size", str(2 * size)) as view:
        bench.same("chunkmount, kernel", wanted, files(view / "a", 2, sum=True)[1:])
        notes = {"passthrough": "possible" if view.stats()["passthrough"]["possible"] else "not possible"}
        against_copies(bench, view, size, wanted, "kernel, raw chunks of 2 MiB, cached", notes, local=False)
    shutil.rmtree(source)


def aside(medians):
    """How fast it is of the tmpfs where the time that reading the source takes is left out."""
    if "tmpfs" not in medians:
        return {}
    left = 1 / medians[OURS] - 1 / medians[SOURCE]
    return {"decode aside": f"{1 / medians['tmpfs'] / left:.2f} of tmpfs" if left > 0 else "no time left"}


def passthrough(stats, count):
    possible = "possible" if stats["possible"] else "not possible"
    return {"passthrough": f"{possible}, {stats['opens']} opens of {count} chunks"}
