#!/usr/bin/env python3
"""Measures chunkmount against other software on the same data in the same run. Started by `scripts/bench`.

Rounds are interleaved: each round measures every contender once, so that what else the machine does falls on all of them.
Figures are medians; ratios hold between machines, absolute figures do not. Every contender's bytes are compared first.

* cold: all chunks of an array read once through a new mount, with one and two readers, against tensorstore and zarrs, which
  decode the same array in process. The source is in the page cache, nothing else is (caches are dropped before each run).
* warm: the chunks of a mount read a second time, against the same decoded files on the local disk, read a second time too.
* listing: `ls -f` and `find` of a directory of very many chunks, against the local file system.
* archive: from the start to the first name listed, and memory, for a zip of very many entries, against fuse-zip and ratarmount.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "mount"))

from support.mounting import Mount, detach, mounted, wait_for  # noqa: E402

PEERS = ROOT / "target" / "bench-peers" / "release" / "bench-peers"
CODECS = {
    "N5 gzip": ("n5", {"type": "gzip", "level": 6}),
    "Zarr v2 zlib": ("zarr", {"id": "zlib", "level": 6}),
    "Zarr v2 zstd": ("zarr", {"id": "zstd", "level": 3}),
    "Zarr v2 blosc-lz4": ("zarr", {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}),
    "Zarr v2 raw": ("zarr", None),
}


def volume(shape):
    """A 16-bit image as microscopes give it: smooth structures with noise in the low bits, so that it halves in size."""
    rng = np.random.default_rng(1)
    axes = [np.sin(np.arange(n) / period) for n, period in zip(shape, (17, 23, 31))]
    smooth = axes[0][:, None, None] * axes[1][None, :, None] + axes[2][None, None, :]
    return (smooth * 2000 + 6000 + rng.integers(0, 64, shape)).astype("<u2")


def spec_of(driver, path, codec=None, shape=None, chunks=None):
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}}
    if driver == "n5" and shape:
        # N5's first axis is the fastest: its axes are given reversed.
        spec["metadata"] = {"dimensions": shape[::-1], "blockSize": chunks[::-1], "dataType": "uint16", "compression": codec}
    elif shape:
        spec["metadata"] = {"shape": shape, "chunks": chunks, "dtype": "<u2", "compressor": codec}
    return spec


def tensorstore_worker(driver, path, readers):
    """Reads each chunk once with tensorstore, in `readers` threads; prints seconds and bytes."""
    import concurrent.futures

    import tensorstore

    limits = {"cache_pool": {"total_bytes_limit": 0}, "data_copy_concurrency": {"limit": readers}, "file_io_concurrency": {"limit": readers}}
    array = tensorstore.open(spec_of(driver, path), open=True, context=tensorstore.Context(limits)).result()
    chunks = array.chunk_layout.read_chunk.shape
    grid = [range(0, n, c) for n, c in zip(array.shape, chunks)]
    places = [tuple(slice(o, min(o + c, n)) for o, c, n in zip(origin, chunks, array.shape)) for origin in product(*grid)]
    start = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(readers) as pool:
        total = sum(pool.map(lambda place: array[place].read().result().nbytes, places))
    print(time.perf_counter() - start, total, 0)


def product(*ranges):
    import itertools

    return itertools.product(*ranges)


def output(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True).stdout


def drop_caches():
    """Empties the page cache, where the machine lets us; says so in the result if not."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
        return True
    except OSError:
        return False


def preload(directory):
    subprocess.run(f"find '{directory}' -type f -print0 | xargs -0 cat > /dev/null", shell=True, check=True)


class Bench:
    def __init__(self, options, room):
        self.options, self.room = options, room
        self.results, self.count = [], 0

    def mount(self, source, *more):
        self.count += 1
        return Mount(source, self.room / f"mnt{self.count}", *more, log=self.room / f"log{self.count}", limit=1800)

    def interleaved(self, group, contenders, unit, less_is_better=True):
        """Runs each contender once a round; keeps the medians and the ratio to the first contender."""
        samples = {name: [] for name in contenders}
        for number in range(self.options.rounds):
            names = list(contenders)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                samples[name].append(contenders[name]())
        first = statistics.median(samples[next(iter(samples))])
        for name, values in samples.items():
            middle = statistics.median(values)
            ratio = (middle / first) if not less_is_better else (first / middle)
            row = {"group": group, "name": name, "unit": unit, "median": middle, "samples": values, "chunkmount_is_times": 1 / ratio}
            self.results.append(row)
            print(f"  {group:34} {name:22} {middle:12.4g} {unit:6} chunkmount is {1 / ratio:6.2f} times as fast", flush=True)

    def read(self, mode, directory, readers, *more):
        seconds, size, checksum = output(PEERS, mode, directory, readers, *more).split()
        return float(seconds), int(size), int(checksum)

    def arrays(self):
        side = self.options.side
        shape, chunks = [side] * 3, [self.options.chunk] * 3
        image = volume(shape)
        for label, (driver, codec) in CODECS.items():
            import tensorstore

            path = self.room / label.replace(" ", "-") / "a"
            values = image.T if driver == "n5" else image
            tensorstore.open(spec_of(driver, path, codec, shape, chunks), create=True).result().write(values).result()
            if driver == "zarr":
                (path.parent / ".zgroup").write_text('{"zarr_format": 2}')
            self.array(label, driver, path)
            shutil.rmtree(path.parent)

    def array(self, label, driver, path):
        encoded = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        with self.mount(path.parent) as view:
            _, size, ours = self.read("files", view.where / "a", 2, "sum")
            if driver == "zarr":
                assert self.read("zarrs", path, 2, "sum")[1:] == (size, ours), "the peers read other bytes"
            local = self.room / "local"
            shutil.copytree(view.where / "a", local)
            assert self.read("files", local, 2, "sum")[1:] == (size, ours)
        print(f"{label}: {size >> 20} MiB, {encoded >> 20} MiB encoded", flush=True)

        for readers in (1, 2):

            def cold(work):
                def run():
                    drop_caches()
                    preload(path)
                    return size / work() / 1e9

                return run

            def through_mount():
                with self.mount(path.parent) as view:
                    return self.read("files", view.where / "a", readers)[0]

            def by_tensorstore():
                return float(output(sys.executable, __file__, "--worker", driver, path, readers).split()[0])

            contenders = {"chunkmount": cold(through_mount), "tensorstore": cold(by_tensorstore)}
            if driver == "zarr":
                contenders["zarrs"] = cold(lambda: self.read("zarrs", path, readers)[0])
            self.interleaved(f"{label}, cold, {readers} reader{'s'[: readers - 1]}", contenders, "GB/s", less_is_better=False)

        with self.mount(path.parent, "--cache-size", "4G") as view:
            self.read("files", view.where / "a", 1)
            self.read("files", local, 1)
            for readers in (1, 2):
                contenders = {
                    "chunkmount": lambda: size / self.read("files", view.where / "a", readers)[0] / 1e9,
                    "decoded files": lambda: size / self.read("files", local, readers)[0] / 1e9,
                }
                self.interleaved(f"{label}, warm, {readers} reader{'s'[: readers - 1]}", contenders, "GB/s", less_is_better=False)
        shutil.rmtree(local)

    def listing(self):
        many = self.options.many
        source = self.room / "many"
        meta = {"zarr_format": 2, "shape": [many], "chunks": [1], "dtype": "|u1", "compressor": None, "filters": None, "order": "C", "fill_value": 0}
        (source / "a").mkdir(parents=True)
        (source / ".zgroup").write_text('{"zarr_format": 2}')
        (source / "a" / ".zarray").write_text(json.dumps(meta))
        for number in range(many):
            os.close(os.open(source / "a" / str(number), os.O_CREAT | os.O_WRONLY))
        for label, command in (("ls -f", "ls -f '{}' | wc -l"), ("find", "find '{}' | wc -l"), ("find -size", "find '{}' -type f -size -100 | wc -l")):

            def timed(directory):
                drop_caches()
                start = time.perf_counter()
                assert int(output("sh", "-c", command.format(directory))) >= many
                return time.perf_counter() - start

            def mounted_listing():
                with self.mount(source) as view:
                    return timed(view.where / "a")

            self.interleaved(f"{many} chunks, {label}", {"chunkmount": mounted_listing, "local files": lambda: timed(source / "a")}, "s")
        shutil.rmtree(source)

    def archive(self):
        many = self.options.many
        path = self.room / "many.zip"
        meta = {"zarr_format": 2, "shape": [many], "chunks": [1], "dtype": "|u1", "compressor": None, "filters": None, "order": "C", "fill_value": 0}
        with zipfile.ZipFile(path, "w") as out:
            out.writestr(".zgroup", '{"zarr_format": 2}')
            out.writestr("a/.zarray", json.dumps(meta))
            for number in range(many):
                out.writestr(zipfile.ZipInfo(f"a/{number}"), b"x")
        memory = {}

        def first_name(name, command):
            """Seconds from the start of a program to the first name of its tree, and its memory then."""

            def run():
                where = self.room / f"zip{time.monotonic_ns()}"
                where.mkdir()
                drop_caches()
                preload(path)
                start = time.perf_counter()
                process = subprocess.Popen([*command, str(path), str(where)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                try:
                    wait_for(lambda: mounted(where) and os.path.isdir(where / "a"), 600, f"{name} mounts")
                    with os.scandir(where / "a") as names:
                        next(names)
                    seconds = time.perf_counter() - start
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    memory.setdefault(name, []).append(int(status.split("VmHWM:")[1].split()[0]) / 1024)
                finally:
                    detach(where)
                    process.terminate()
                    process.wait(60)
                    if where.exists():
                        where.rmdir()
                return seconds

            return run

        tools = {
            "chunkmount": [str(ROOT / "target" / "release" / "chunkmount"), "-f"],
            "fuse-zip": ["fuse-zip", "-r", "-f"],
            "ratarmount": [str(Path(sys.executable).parent / "ratarmount"), "-f", "--index-file", ":memory:"],
        }
        group = f"zip of {many} entries"
        self.interleaved(f"{group}, first name", {name: first_name(name, command) for name, command in tools.items()}, "s")
        ours = statistics.median(memory["chunkmount"])
        for name, values in memory.items():
            middle = statistics.median(values)
            self.results.append({"group": f"{group}, memory", "name": name, "unit": "MiB", "median": middle, "samples": values, "chunkmount_is_times": ours / middle})
            print(f"  {group + ', memory':34} {name:22} {middle:12.4g} MiB    chunkmount takes {ours / middle:5.2f} of it", flush=True)
        path.unlink()


def versions():
    """What was measured, and on what."""
    from importlib.metadata import version

    model = next((line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?")
    peers = (ROOT / "scripts" / "bench-peers" / "Cargo.lock").read_text()
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {model}",
        "kernel": platform.release(),
        "chunkmount": output(ROOT / "target" / "release" / "chunkmount", "--version").split()[-1],
        "tensorstore": version("tensorstore"),
        "zarrs": peers.split('name = "zarrs"\nversion = "')[1].split('"')[0],
        "ratarmount": version("ratarmount"),
        "fuse-zip": output("dpkg-query", "-W", "-f", "${Version}", "fuse-zip"),
    }


def table(results):
    """The results as a Markdown table: one line for each group, one column for each contender."""
    lines = ["| what | chunkmount | others | chunkmount is |", "| --- | --: | :-- | :-- |"]
    for group in dict.fromkeys(row["group"] for row in results):
        rows = [row for row in results if row["group"] == group]
        ours, others = rows[0], rows[1:]
        figures = ", ".join(f"{row['name']} {row['median']:.3g}" for row in others)
        ratios = ", ".join(f"{row['chunkmount_is_times']:.2f}" for row in others)
        lines.append(f"| {group}, {ours['unit']} | {ours['median']:.3g} | {figures} | {ratios} |")
    return "\n".join(lines)


def main():
    if sys.argv[1:2] == ["--worker"]:
        driver, path, readers = sys.argv[2:5]
        tensorstore_worker(driver, path, int(readers))
        return
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="small data and three rounds")
    arguments.add_argument("--side", type=int, help="edge of the volume, in voxels of two bytes [640, quick 256]")
    arguments.add_argument("--chunk", type=int, default=64, help="edge of a chunk [64]")
    arguments.add_argument("--many", type=int, help="chunks in the large directory and archive [1000000, quick 100000]")
    arguments.add_argument("--rounds", type=int, help="[7, quick 3]")
    arguments.add_argument("--only", choices=["arrays", "listing", "archive"])
    arguments.add_argument("--json", default="target/bench.json", help="where the figures go [target/bench.json]")
    arguments.add_argument("--dir", help="where the data is made; a local disk")
    options = arguments.parse_args()
    options.side = options.side or (256 if options.quick else 640)
    options.many = options.many or (100_000 if options.quick else 1_000_000)
    options.rounds = options.rounds or (3 if options.quick else 7)
    os.environ["CHUNKMOUNT_BIN"] = str(ROOT / "target" / "release" / "chunkmount")
    room = Path(tempfile.mkdtemp(prefix="chunkmount-bench-", dir=options.dir))
    bench, about = Bench(options, room), versions()
    about["caches dropped"] = drop_caches()
    print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    try:
        for part in ["arrays", "listing", "archive"]:
            if options.only in (None, part):
                getattr(bench, part)()
    finally:
        shutil.rmtree(room, ignore_errors=True)
    Path(options.json).parent.mkdir(parents=True, exist_ok=True)
    Path(options.json).write_text(json.dumps({"about": about, "options": vars(options), "results": bench.results}, indent=1))
    print("\n" + table(bench.results))
    print(f"\nratios over 1: chunkmount is faster (memory: takes more). Figures: {options.json}")


if __name__ == "__main__":
    main()
