"""Throughput from a server of objects that answers late: chunkmount, rclone mount, tensorstore, zarrs, and plain requests.

Each round mounts anew, so that nothing is warm; rounds are interleaved and the median is told. The server is the tests' own,
a process of Python, so it is the latency that is measured and not the bandwidth. The same values are there as objects for each
chunk, in a zip, and in shards; what else than plain requests and rclone reads them decodes them.
"""

import argparse
import datetime
import importlib.metadata
import io
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import zipfile
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Process, Queue
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "mount"))

from support.mounting import detach, mounted, wait_for  # noqa: E402
from support.s3 import Double, clean_env  # noqa: E402


def serve(told, delay, count, side):
    """The server, in a process of its own: `count` chunks of `side` cubed 16-bit values, compressed by zlib."""
    import zlib

    import zarr

    def late(_):
        time.sleep(delay)
        return False

    double = Double()
    values = np.random.default_rng(0).integers(0, 500, (side, side, side), dtype="<u2")
    document = {
        "zarr_format": 2, "shape": [side * count, side, side], "chunks": [side] * 3, "dtype": "<u2", "order": "C",
        "compressor": {"id": "zlib", "level": 1}, "filters": None, "fill_value": 0, "dimension_separator": ".",
    }
    files = {".zarray": json.dumps(document).encode(), ".zattrs": b"{}"}
    for i in range(count):
        files[f"{i}.0.0"] = zlib.compress((values + i).astype("<u2").tobytes(), 1)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as out:
        for name, content in files.items():
            double.put(f"a/{name}", content)
            out.writestr(name, content)
    double.put("a.zip", archive.getvalue())
    with tempfile.TemporaryDirectory() as folder:
        array = zarr.create_array(
            f"{folder}/s", shape=document["shape"], chunks=document["chunks"], shards=(side * SHARD, side, side), dtype="<u2",
            compressors=zarr.codecs.GzipCodec(level=1),
        )
        array[:] = np.concatenate([values + i for i in range(count)])
        double.upload("s", f"{folder}/s")
    double.faults.append(late)
    told.put(double.url)
    time.sleep(100_000)


# Chunks in a shard.
SHARD = 64


class Mounted:
    def __init__(self, command, env=None):
        self.where = Path(tempfile.mkdtemp(prefix="bench-s3-"))
        self.process = subprocess.Popen([*command(self.where)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        try:
            wait_for(lambda: mounted(self.where) and os.listdir(self.where), 60, "it is mounted")
        except BaseException:
            self.__exit__()
            raise
        return self.where

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)
        detach(self.where)
        shutil.rmtree(self.where, ignore_errors=True)


def timed(work):
    start = time.monotonic()
    work()
    return time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chunks", type=int, default=256)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--delay", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="write all times and what was measured there as well")
    options = parser.parse_args()
    assert options.chunks % SHARD == 0, f"chunks are in shards of {SHARD}"
    told = Queue()
    server = Process(target=serve, args=(told, options.delay, options.chunks, options.side), daemon=True)
    server.start()
    url = told.get()
    names = [f"{i}.0.0" for i in range(options.chunks)]
    binary = os.environ.get("CHUNKMOUNT_BIN", ROOT / "target" / "release" / "chunkmount")

    def fetch(number):
        def get(name):
            with urllib.request.urlopen(f"{url}/b/a/{name}") as answer:
                return answer.read()

        with ThreadPoolExecutor(number) as pool:
            list(pool.map(get, names))

    def ours(name="a"):
        return lambda where: [binary, f"s3://b/{name}", where, "-f", "--endpoint-url", url, "--no-sign-request"]

    def rclone(where):
        remote = f':s3,provider=Other,endpoint="{url}",env_auth=false,list_version=2,list_url_encode=false:b/a'
        return ["rclone", "mount", remote, where, "--read-only", "--dir-cache-time", "1h"]

    def cat(where, names=names):
        subprocess.run(["cat", *names], cwd=where, stdout=subprocess.DEVNULL, check=True)

    def cats(where, names=names):
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda name: (where / name).read_bytes(), names))

    in_shards = [f"c/{i}/0/0" for i in range(options.chunks)]

    def through(command, work):
        def run():
            with Mounted(command, clean_env()) as where:
                return timed(lambda: work(where))

        return run

    def in_process(code):
        code = f"import time\n{code}\nstart = time.monotonic()\nread()\nprint(time.monotonic() - start)\n"
        # As many requests at a time as the plain ones make; the others have no such bound.
        env = {**os.environ, "RAYON_NUM_THREADS": "32"}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
        if done.returncode != 0:
            raise ValueError(done.stderr[-500:])
        return float(done.stdout)

    def tensorstore(driver, name):
        return lambda: in_process(
            "import tensorstore as ts\n"
            f"spec = {{'driver': {driver!r}, 'kvstore': {{'driver': 'http', 'base_url': {f'{url}/b/{name}/'!r}}}}}\n"
            "array = ts.open(spec, open=True).result()\n"
            "read = lambda: array.read().result()"
        )

    def zarrs(name):
        return lambda: in_process(
            "import zarr, zarrs\nfrom obstore.store import S3Store\nfrom zarr.storage import ObjectStore\n"
            "zarr.config.set({'codec_pipeline.path': 'zarrs.ZarrsCodecPipeline', 'threading.max_workers': 32,"
            " 'async.concurrency': 32})\n"
            f"store = S3Store('b', prefix={name!r}, endpoint={url!r}, skip_signature=True, region='us-east-1',"
            " client_options={'allow_http': True})\n"
            "array = zarr.open_array(ObjectStore(store, read_only=True), mode='r')\n"
            "read = lambda: array[:]"
        )

    ways = {
        "32 plain requests at a time": lambda: timed(lambda: fetch(32)),
        "chunkmount, cat of one after the other": through(ours(), cat),
        "chunkmount, 32 readers": through(ours(), cats),
        "tensorstore, in process, all at once": tensorstore("zarr", "a"),
        "zarrs (Python, obstore), in process, all at once": zarrs("a"),
        "a zip: chunkmount, cat of one after the other": through(ours("a.zip"), cat),
        "a zip: chunkmount, 32 readers": through(ours("a.zip"), cats),
        f"shards of {SHARD}: chunkmount, cat of one after the other": through(ours("s"), lambda where: cat(where, in_shards)),
        f"shards of {SHARD}: chunkmount, 32 readers": through(ours("s"), lambda where: cats(where, in_shards)),
        f"shards of {SHARD}: tensorstore, in process, all at once": tensorstore("zarr3", "s"),
        f"shards of {SHARD}: zarrs (Python, obstore), in process, all at once": zarrs("s"),
    }
    if shutil.which("rclone"):
        ways["rclone mount, cat of one after the other (encoded)"] = through(rclone, cat)
        ways["rclone mount, 32 readers (encoded)"] = through(rclone, cats)
    times = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way, run in ways.items():
            try:
                times[way].append(run())
            except (OSError, subprocess.CalledProcessError, ValueError, AssertionError) as problem:
                print(f"{way}: {problem}", file=sys.stderr)
    base = statistics.median(times["32 plain requests at a time"])
    print(f"{options.chunks} chunks of {options.side}^3 16-bit values, {options.delay * 1000:.0f} ms added to each request\n")
    print("| | seconds | throughput, 32 plain requests at a time = 1 |\n| --- | --: | --: |")
    for way, all_times in times.items():
        if all_times:
            took = statistics.median(all_times)
            print(f"| {way} | {took:.2f} | {base / took:.2f} |")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(record(options, times), file, indent=1)
    server.kill()


def record(options, times):
    """What was measured, on what, and each time in seconds."""

    def version(*command):
        done = subprocess.run(command, capture_output=True, text=True) if shutil.which(command[0]) else None
        return done.stdout.splitlines()[0] if done and done.stdout else None

    packages = {name: importlib.metadata.version(name) for name in ("tensorstore", "zarr", "zarrs", "obstore")}
    binary = str(os.environ.get("CHUNKMOUNT_BIN", ROOT / "target" / "release" / "chunkmount"))
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "cpus": os.cpu_count(), "load": os.getloadavg(),
        "kernel": os.uname().release, "chunkmount": version(binary, "-V"), "rclone": version("rclone", "version"), **packages,
        "chunks": options.chunks, "side": options.side, "delay": options.delay, "shard": SHARD,
        "bytes": options.chunks * options.side**3 * 2, "seconds": times,
    }


if __name__ == "__main__":
    main()
