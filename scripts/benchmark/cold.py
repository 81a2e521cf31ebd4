"""All chunk files of a dataset, read once through a new mount, against software that decodes the same store in process.

Each codec stands in the format that natively has it. The source is in the page cache, nothing else is. What is outside of the
time on all sides: opening the array, and finding out which chunks there are.
"""

import shutil
from dataclasses import dataclass

import stores
from machine import peers, size_of, worker
from rounds import OURS, files, fresh, plural

BLOSC = {"id": "blosc", "clevel": 5, "shuffle": 1, "blocksize": 0}


@dataclass
class Dataset:
    codec: str
    format: str
    driver: str
    given: object = None
    container: str = "directory"
    sharded: bool = False
    # Few values in long runs, as of a segmentation: LZ4 alone finds nothing in noise.
    labels: bool = False
    # Bytes that take long to decode are measured in fewer rounds.
    slow: bool = False

    @property
    def label(self):
        more = (", labels" if self.labels else "") + (", sharded" if self.sharded else "") + (", zip" if self.container == "zip" else "")
        return f"{self.codec} ({self.format}{more})"


DATASETS = [
    Dataset("gzip", "N5", "n5", {"type": "gzip", "level": 6}),
    Dataset("lz4", "N5", "n5-lz4", labels=True),
    Dataset("bzip2", "N5", "n5", {"type": "bzip2", "blockSize": 9}, slow=True),
    Dataset("xz", "N5", "n5", {"type": "xz", "preset": 6}, slow=True),
    Dataset("raw", "N5", "n5", {"type": "raw"}),
    Dataset("zlib", "Zarr v2", "zarr", stores.ZLIB),
    Dataset("zstd", "Zarr v2", "zarr", stores.ZSTD),
    Dataset("blosc-lz4", "Zarr v2", "zarr", {**BLOSC, "cname": "lz4"}),
    Dataset("blosc-zstd", "Zarr v2", "zarr", {**BLOSC, "cname": "zstd"}),
    Dataset("raw", "Zarr v2", "zarr"),
    Dataset("zstd", "Zarr v3", "zarr3", "zstd"),
    Dataset("zstd", "Zarr v3", "zarr3", "zstd", sharded=True),
    Dataset("lz4", "WKW", "wkw", "lz4", labels=True),
    Dataset("raw", "WKW", "wkw", "raw"),
    Dataset("zlib", "Zarr v2", "zarr", stores.ZLIB, container="zip"),
    Dataset("raw", "Zarr v2", "zarr", container="zip"),
]


def write(dataset, path, image, edge):
    shape, chunks = list(image.shape), [edge] * 3
    if dataset.driver == "wkw":
        stores.cubes(path, dataset.given, image, edge)
    elif dataset.driver == "n5-lz4":
        stores.n5_lz4(path, image, chunks)
    else:
        per_axis = shape[0] // edge
        across = next(n for n in (5, 4, 3, 2, 1) if per_axis % n == 0)
        shard = [edge * across] * 3 if dataset.sharded else None
        stores.create(dataset.driver, path, dataset.given, shape, chunks, image.dtype, shard).write(image).result()


def in_process(dataset, path, shape, readers):
    """The peers that decode this dataset, by name: each a function of `sum` that gives what it printed."""

    def rust(mode):
        return lambda *summed: peers(mode, path, readers, *summed)

    def by_tensorstore(*summed):
        return worker("tensorstore", dataset.driver, path, readers, *summed)

    def by_wkw(*summed):
        return worker("wkw", path, readers, ",".join(map(str, shape)), *summed)

    if dataset.driver == "wkw":
        return {"wkw": by_wkw}
    if dataset.driver == "n5-lz4":
        return {"n5 (Rust)": rust("n5")}
    if dataset.driver == "n5":
        return {"tensorstore": by_tensorstore, "n5 (Rust)": rust("n5")}
    return {"tensorstore": by_tensorstore, "zarrs": rust("zarrs-zip" if dataset.container == "zip" else "zarrs")}


def measure(bench):
    edge, side = bench.sizes.chunk, bench.sizes.side
    image = stores.volume([side] * 3)
    images = {False: image, True: image >> 10}
    truths = {labels: stores.digest_of(values, [edge] * 3) for labels, values in images.items()}
    for number, dataset in enumerate(DATASETS):
        room = bench.room / f"cold{number}"
        array = room / "s" / ("1" if dataset.driver == "wkw" else "a")
        array.parent.mkdir(parents=True)
        write(dataset, array, images[dataset.labels], edge)
        source = array.parent
        if dataset.container == "zip":
            source = room / "s.zip"
            stores.archive(array.parent, source)
        one(bench, dataset, source, array.name, source if dataset.container == "zip" else array, image, truths[dataset.labels])
        shutil.rmtree(room)


def one(bench, dataset, source, name, path, image, truth):
    """`source` is mounted, the array is `name` in it; the peers open `path`."""
    wanted = (image.nbytes, truth)
    with bench.mount(source) as view:
        bench.same(f"chunkmount, {dataset.label}", wanted, files(view / name, 2, sum=True)[1:])
    for peer, run in in_process(dataset, path, image.shape, 2).items():
        _, size, digest = run("sum")
        bench.same(f"{peer}, {dataset.label}", wanted, (int(size), int(digest)))

    for readers in bench.sizes.readers:

        def through_mount():
            with bench.mount(source) as view:
                return image.nbytes / files(view / name, readers)[0] / 1e9

        contenders = {OURS: fresh(source, through_mount)}
        for peer, run in in_process(dataset, path, image.shape, readers).items():
            contenders[peer] = fresh(source, lambda run=run: image.nbytes / float(run()[0]) / 1e9)
        notes = {"encoded to": round(size_of(path) / image.nbytes, 3)}
        rounds = min(bench.rounds, 3) if dataset.slow else bench.rounds
        bench.compare(f"cold read, {dataset.label}, {plural(readers)}", contenders, "GB/s", more=True, notes=notes, rounds=rounds)
