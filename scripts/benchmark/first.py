"""Opening a cold chunk of 2 MiB and reading its first 4 KiB, against decoding that chunk in process: what a mount adds to decoding."""

import shutil

import stores
from machine import peers
from rounds import OURS, RECYCLED, fresh

VALUES = 1 << 20


def measure(bench):
    count = bench.sizes.first
    for codec in ("gzip", "zstd", "raw"):
        source = bench.room / f"first-{codec}"
        source.mkdir()
        _, heads = stores.row("zarr3", source / "a", codec, count, VALUES)
        ahead = []

        def through_mount():
            with bench.mount(source, *RECYCLED) as view:
                median, read, digest = peers("first", view / "a")
                bench.same("chunkmount, first", (count, heads), (int(read), int(digest)))
                ahead.append(view.stats()["read_ahead"]["chunks"])
            return float(median)

        contenders = {OURS: fresh(source, through_mount), "zarrs, decoding alone": fresh(source, lambda: float(peers("decode", source / "a")[0]))}

        def notes(medians):
            ours, decoding = medians.values()
            return {"over decoding": f"{ours - decoding:+.0f} µs", "chunks read ahead": ahead[-1]}

        bench.compare(f"first 4 KiB of a cold chunk of 2 MiB, {codec}", contenders, "µs", more=False, notes=notes)
        shutil.rmtree(source)
