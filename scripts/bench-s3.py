"""Throughput from a server of objects that answers late: chunkmount, rclone mount, tensorstore, and plain requests.

Each round mounts anew, so that nothing is warm; rounds are interleaved and the median is told. The server is the tests' own,
a process of Python, so it is the latency that is measured and not the bandwidth.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
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

    def late(_):
        time.sleep(delay)
        return False

    double = Double()
    values = np.random.default_rng(0).integers(0, 500, (side, side, side), dtype="<u2")
    document = {
        "zarr_format": 2, "shape": [side * count, side, side], "chunks": [side] * 3, "dtype": "<u2", "order": "C",
        "compressor": {"id": "zlib", "level": 1}, "filters": None, "fill_value": 0, "dimension_separator": ".",
    }
    double.put("a/.zarray", json.dumps(document).encode())
    double.put("a/.zattrs", b"{}")
    for i in range(count):
        double.put(f"a/{i}.0.0", zlib.compress((values + i).astype("<u2").tobytes(), 1))
    double.faults.append(late)
    told.put(double.url)
    time.sleep(100_000)


class Mounted:
    def __init__(self, command, env=None):
        self.where = Path(tempfile.mkdtemp(prefix="bench-s3-"))
        self.process = subprocess.Popen([*command(self.where)], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def __enter__(self):
        wait_for(lambda: mounted(self.where) and os.listdir(self.where), 60, "it is mounted")
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
    options = parser.parse_args()
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

    def ours(where):
        return [binary, "s3://b/a", where, "-f", "--endpoint-url", url, "--no-sign-request"]

    def rclone(where):
        remote = f':s3,provider=Other,endpoint="{url}",env_auth=false:b/a'
        return ["rclone", "mount", remote, where, "--read-only", "--dir-cache-time", "1h"]

    def cat(where):
        subprocess.run(["cat", *names], cwd=where, stdout=subprocess.DEVNULL, check=True)

    def cats(where):
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(lambda name: (where / name).read_bytes(), names))

    def through(command, work):
        def run():
            with Mounted(command, clean_env()) as where:
                return timed(lambda: work(where))

        return run

    def tensorstore():
        code = (
            "import tensorstore as ts, time\n"
            f"spec = {{'driver': 'zarr', 'kvstore': {{'driver': 'http', 'base_url': {url + '/b/a/'!r}}}}}\n"
            "array = ts.open(spec, open=True).result()\n"
            "start = time.monotonic()\narray.read().result()\nprint(time.monotonic() - start)\n"
        )
        return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)

    ways = {
        "32 plain requests at a time": lambda: timed(lambda: fetch(32)),
        "chunkmount, cat of one after the other": through(ours, cat),
        "chunkmount, 32 readers": through(ours, cats),
        "tensorstore, in process, all at once": tensorstore,
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
    server.kill()


if __name__ == "__main__":
    main()
