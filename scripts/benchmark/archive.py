"""Zip archives of very many entries: from the start of a program until it is open (the root's names are there) and to the first name
of the directory with all of them, and the most memory it took until then."""

import json
import os
import statistics
import time
import zipfile

from machine import peers, preload, status
from programs import archive_tools, mounting
from rounds import OURS, fresh
from stores import empty_array

LIBRARY = "zip (Rust), in process"


def measure(bench):
    for number, many in enumerate(bench.sizes.archives):
        path = bench.room / "many.zip"
        with zipfile.ZipFile(path, "w") as out:
            out.writestr(".zgroup", '{"zarr_format": 2}')
            out.writestr("a/.zarray", json.dumps(empty_array(many)))
            for entry in range(many):
                out.writestr(zipfile.ZipInfo(f"a/{entry}"), b"x")
        one(bench, path, many, bench.without_slow_peers and number > 0)
        path.unlink()


def one(bench, path, many, without_slow_peers):
    memory, opened, reads = {}, {}, []

    def first_name(name, command):
        def run():
            where = bench.room / f"zip{next(bench.numbers)}"
            with mounting(command, path, where, bench.room / "log") as (process, start):
                os.listdir(where)
                opened.setdefault(name, []).append(time.perf_counter() - start)
                with os.scandir(where / "a") as names:
                    next(names)
                seconds = time.perf_counter() - start
                memory.setdefault(name, []).append(status(process.pid, "VmHWM"))
                if name == OURS:
                    reads.append(json.loads((where / ".chunkmount" / "stats.json").read_text())["store"])
            return seconds

        return fresh(path, run)

    def library():
        seconds, entries, peak = peers("zip", path)
        bench.same(LIBRARY, many + 2, int(entries))
        memory.setdefault(LIBRARY, []).append(int(peak) / 1024)
        opened.setdefault(LIBRARY, []).append(float(seconds))
        return float(seconds)

    tools = archive_tools()
    if without_slow_peers:
        tools = {OURS: tools[OURS]}
    contenders = {name: first_name(name, command) for name, command in tools.items()}
    contenders[LIBRARY] = fresh(path, library)
    preload(path)
    rounds = min(bench.rounds, 3)
    bench.compare(f"zip of {many} entries, start to first name", contenders, "s", more=False, rounds=rounds, notes=lambda _: scanned(reads[-1], path))
    bench.add(f"zip of {many} entries, start to open", opened, "s", more=False)
    per_entry = statistics.median(memory[OURS]) * 2**20 / many
    bench.add(f"zip of {many} entries, memory", memory, "MiB", more=False, amount=True, notes={"bytes for an entry": per_entry})


def scanned(store, path):
    """What the mount had read until then, as it counts itself."""
    return {"reads, of documents too": store["get"], "MiB read": store["bytes"] / 2**20, "MiB in the archive": path.stat().st_size / 2**20}
