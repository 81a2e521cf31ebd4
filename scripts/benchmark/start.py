"""From the start of `chunkmount` to the first `ls` answered: a directory of arrays, and the same as a zip."""

import json
import shutil
import subprocess
import time

import stores
from machine import drop_caches, preload
from programs import archive_tools
from rounds import OURS

from support.mounting import detach, mounted, wait_for


def measure(bench):
    document = json.dumps(stores.empty_array(1))
    for arrays in bench.sizes.start:
        source = bench.room / "start"
        source.mkdir()
        (source / ".zgroup").write_text('{"zarr_format": 2}')
        for number in range(arrays):
            (source / f"a{number}").mkdir()
            (source / f"a{number}" / ".zarray").write_text(document)
        what = f"start to first ls, {arrays} array{'s' if arrays > 1 else ''}"
        bench.compare(f"{what}, directory", {OURS: first_ls(bench, OURS, source, arrays)}, "s", more=False)
        archive = bench.room / "start.zip"
        stores.archive(source, archive)
        contenders = {name: first_ls(bench, name, archive, arrays) for name in archive_tools()}
        bench.compare(f"{what}, zip", contenders, "s", more=False)
        archive.unlink()
        shutil.rmtree(source)


def first_ls(bench, name, source, arrays):
    """In the background, as it is used: the command returns when the mount is there, then the root is listed."""
    command = [part for part in archive_tools()[name] if part != "-f"]

    def run():
        where = bench.room / f"start{next(bench.numbers)}"
        where.mkdir()
        drop_caches()
        preload(source)
        # The programs are in memory, as those in use are: their size on the disk is not what is measured.
        for program in (command[0], "ls"):
            subprocess.run([program, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            start = time.perf_counter()
            with open(bench.room / "log", "wb") as log:
                # Not a pipe: what goes on in the background would keep it open.
                subprocess.run([*command, str(source), str(where)], check=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            wait_for(lambda: mounted(where), 60, f"{name} mounts")
            names = subprocess.run(["ls", "-f", str(where)], check=True, capture_output=True, text=True).stdout.split()
            seconds = time.perf_counter() - start
        finally:
            detach(where)
        bench.same(f"{name}, names", arrays, sum(1 for one in names if one[0] == "a"))
        if where.exists():
            where.rmdir()
        return seconds

    return run
