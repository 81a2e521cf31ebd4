#!/usr/bin/env python3
"""Measures chunkmount against other software on the same data in the same run. Started by `scripts/bench`.

Rounds are interleaved, figures are medians, and every contender's bytes are compared first; ratios hold between machines, absolute
figures do not. docs/performance.md says what each group measures.
"""

import argparse
import importlib
import json
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from machine import DROP, versions
from report import LEGEND, table
from rounds import Bench

GROUPS = {
    "cold": "cold",
    "warm": "warm",
    "kernel": "kernel",
    "first": "first",
    "small": "small",
    "random": "random_reads",
    "listing": "listing",
    "archive": "archive",
    "start": "start",
    "memory": "memory",
}


@dataclass
class Sizes:
    """How much data each group has."""

    rounds: int = 5
    readers: tuple = (1, 2)
    side: int = 512
    """Edge of the volume of `cold` and `warm`, in voxels of two bytes."""
    chunk: int = 64
    kernel: int = 256
    """Chunks of 2 MiB."""
    first: int = 300
    small: tuple = (40, 50, 50)
    """The grid of chunks of 32³ bytes."""
    random_chunks: int = 300
    random_reads: int = 20_000
    many: int = 1_000_000
    """Names in the large directory."""
    archives: tuple = (1_000_000, 5_000_000)
    start: tuple = (1, 1_000, 100_000)
    memory: tuple = (64, 64, 256)
    """Readers, MiB of a chunk, MiB of the cache."""


FULL = Sizes()
QUICK = Sizes(2, (1, 2), 256, 64, 64, 60, (8, 25, 25), 60, 5_000, 100_000, (100_000, 500_000), (1, 1_000, 10_000), (16, 16, 64))
SMOKE = Sizes(1, (2,), 128, 32, 4, 4, (2, 5, 10), 6, 100, 1_000, (1_000, 2_000), (1, 100), (4, 4, 8))


def main():
    arguments = argparse.ArgumentParser(prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = arguments.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small data and two rounds, about five minutes")
    size.add_argument("--smoke", action="store_true", help="hardly any data, one round, caches as they are: only that all works")
    arguments.add_argument("--side", type=int, help=f"edge of the volume, in voxels of two bytes [{FULL.side}, quick {QUICK.side}]")
    arguments.add_argument("--chunk", type=int, help=f"edge of a chunk [{FULL.chunk}]")
    arguments.add_argument("--many", type=int, help=f"chunks in the large directory and the first archive [{FULL.many}, quick {QUICK.many}]")
    arguments.add_argument("--rounds", type=int, help=f"[{FULL.rounds}, quick {QUICK.rounds}]; fewer where one takes long")
    arguments.add_argument("--only", choices=GROUPS, action="append", metavar="GROUP", help="this group only; may be repeated")
    arguments.add_argument("--list", action="store_true", help="list the groups")
    arguments.add_argument("--peers-small", action="store_true", help="leave out fuse-zip and ratarmount at the largest archive")
    arguments.add_argument("--json", default="target/bench.json", help="where the figures go, and beside it the table [target/bench.json]")
    arguments.add_argument("--dir", help="where the data is made; a local disk")
    options = arguments.parse_args()
    # Who ends it by a signal finds everything unmounted as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    modules = {name: importlib.import_module(module) for name, module in GROUPS.items()}
    if options.list:
        for name, module in modules.items():
            print(f"{name:8} {' '.join(module.__doc__.split())}")
        return
    sizes = QUICK if options.quick else SMOKE if options.smoke else FULL
    given = {name: getattr(options, name) for name in ("side", "chunk", "many", "rounds") if getattr(options, name)}
    if options.many:
        given["archives"] = (options.many, 5 * options.many)
    sizes = replace(sizes, **given)
    if sizes.side % sizes.chunk:
        arguments.error("--side is not a multiple of --chunk")
    DROP[0] = not options.smoke
    about = versions()
    print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    room = Path(tempfile.mkdtemp(prefix="chunkmount-bench-", dir=options.dir))
    bench, took = Bench(sizes, sizes.rounds, room, options.peers_small), {}
    try:
        for name, module in modules.items():
            if options.only and name not in options.only:
                continue
            print(f"{name}:", flush=True)
            bench.group, start = name, time.monotonic()
            module.measure(bench)
            took[name] = round(time.monotonic() - start, 1)
            print(f"  ({took[name]} s)", flush=True)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    path = Path(options.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"about": about, "sizes": asdict(sizes), "seconds": took, "results": bench.results}, indent=1))
    text = f"{table(bench.results)}\n\n{LEGEND}\n"
    path.with_suffix(".md").write_text(text)
    print(f"\n{text}\nFigures: {path}, table: {path.with_suffix('.md')}")


if __name__ == "__main__":
    main()
