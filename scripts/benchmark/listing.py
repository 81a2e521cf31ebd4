"""Very many chunk names in one directory: listed, searched and asked for their sizes, against the local files."""

import json
import os
import shutil
import time

from machine import drop_caches, output
from rounds import OURS
from stores import empty_array

COMMANDS = {
    "ls -f": 'ls -f "$0" | wc -l',
    "find": 'find "$0" | wc -l',
    "find -size": 'find "$0" -type f -size -100 | wc -l',
    "ls -l": 'ls -l "$0" | wc -l',
}


def measure(bench):
    many = bench.sizes.many
    source = bench.room / "many"
    array = source / "a"
    array.mkdir(parents=True)
    (source / ".zgroup").write_text('{"zarr_format": 2}')
    (array / ".zarray").write_text(json.dumps(empty_array(many)))
    for number in range(many):
        os.close(os.open(array / str(number), os.O_CREAT | os.O_WRONLY))

    def timed(command, directory):
        start = time.perf_counter()
        if int(output("sh", "-c", command, directory)) < many:
            raise SystemExit(f"{command} {directory}: names are missing")
        return time.perf_counter() - start

    for name, command in COMMANDS.items():

        def cold_mount():
            with bench.mount(source) as view:
                drop_caches()
                return timed(command, view / "a")

        def cold_local():
            drop_caches()
            return timed(command, array)

        bench.compare(f"{many} names, {name}, cold", {OURS: cold_mount, "local files": cold_local}, "s", more=False, rounds=min(bench.rounds, 3))
    with bench.mount(source) as view:
        for name, command in COMMANDS.items():
            for directory in (view / "a", array):
                timed(command, directory)
            contenders = {OURS: lambda: timed(command, view / "a"), "local files": lambda: timed(command, array)}
            bench.compare(f"{many} names, {name}, warm", contenders, "s", more=False, rounds=min(bench.rounds, 3))
    shutil.rmtree(source)
