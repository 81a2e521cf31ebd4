"""The chunks of a mount, read again, against the same decoded bytes in files: on the local disk (in the page cache), and on a tmpfs."""

import shutil

import stores
from machine import copied, memory_room
from rounds import OURS, files, plural


def measure(bench):
    side, edge = bench.sizes.side, bench.sizes.chunk
    image = stores.volume([side] * 3)
    source = bench.room / "warm"
    source.mkdir()
    stores.create("zarr", source / "a", stores.ZSTD, [side] * 3, [edge] * 3, image.dtype).write(image).result()
    with bench.mount(source, "--cache-size", "4G") as view:
        # This also reads all for the first time.
        wanted = (image.nbytes, stores.digest_of(image, [edge] * 3))
        bench.same("chunkmount, warm", wanted, files(view / "a", 2, sum=True)[1:])
        against_copies(bench, view, image.nbytes, wanted, "warm read", {"chunks of": f"{edge**3 * 2 >> 10} KiB"})
    shutil.rmtree(source)


def against_copies(bench, view, size, wanted, what, notes, local=True):
    """Reads the array `a` of a mount that has been read before, and copies of its files."""
    shared = memory_room(size)
    try:
        copies = {"local disk": copied(view / "a", bench.room / "decoded")} if local else {}
        if shared:
            copies["tmpfs"] = copied(view / "a", shared / "a")
        for name, copy in copies.items():
            bench.same(name, wanted, files(copy, 2, sum=True)[1:])
        for readers in bench.sizes.readers:
            contenders = {OURS: lambda: size / files(view / "a", readers)[0] / 1e9}
            for name, copy in copies.items():
                contenders[name] = lambda copy=copy: size / files(copy, readers)[0] / 1e9
            bench.compare(f"{what}, {plural(readers)}", contenders, "GB/s", more=True, notes=lambda _: {**notes, "passthrough opens": view.stats()["passthrough"]["opens"]})
    finally:
        shutil.rmtree(bench.room / "decoded", ignore_errors=True)
        if shared:
            shutil.rmtree(shared)
