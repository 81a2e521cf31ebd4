"""Very many chunks of 32³ bytes, a file each, where the ways to the daemon are most of it."""

import shutil
import zlib

import stores
from machine import peers, worker
from rounds import OURS, files, fresh, plural

EDGE = 32


def measure(bench):
    grid = bench.sizes.small
    shape = [EDGE * n for n in grid]
    size = shape[0] * shape[1] * shape[2]
    for label, codec in (("zstd", stores.ZSTD), ("raw", None)):
        source = bench.room / f"small-{label}"
        source.mkdir()
        array = stores.create("zarr", source / "a", codec, shape, [EDGE] * 3, "|u1")
        sums = []
        for begin in range(0, shape[0], EDGE):
            layer = stores.volume([EDGE, *shape[1:]], begin, "|u1")
            array[begin : begin + EDGE].write(layer).result()
            sums += [zlib.crc32(layer[place].tobytes()) for place in stores.places(layer.shape, [EDGE] * 3)]
        wanted = (size, stores.digest(sums))
        run = {
            "zarrs": lambda readers, *summed: peers("zarrs", source / "a", readers, *summed),
            "zarr-python": lambda readers, *summed: worker("zarr", source / "a", readers, *summed),
        }
        with bench.mount(source) as view:
            bench.same("chunkmount, small", wanted, files(view / "a", 2, sum=True)[1:])
        for name, read in run.items():
            bench.same(f"{name}, small", wanted, tuple(map(int, read(2, "sum")[1:])))
        for readers in bench.sizes.readers:

            def through_mount():
                with bench.mount(source) as view:
                    return len(sums) / files(view / "a", readers)[0]

            contenders = {OURS: fresh(source, through_mount)}
            for name, read in run.items():
                contenders[name] = fresh(source, lambda read=read: len(sums) / float(read(readers)[0]))
            bench.compare(f"{len(sums)} chunks of 32³ bytes, {label}, {plural(readers)}", contenders, "chunks/s", more=True, rounds=min(bench.rounds, 3))
        shutil.rmtree(source)
