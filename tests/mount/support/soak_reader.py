"""A reader of the soak: does something at random again and again until it is killed, and compares every byte with the truth.

Called as `soak_reader.py PLACES SEED`. Tells the beginning and the end of each operation by a line: `B KIND PLACE PATH`, then `E ok`,
`E errno N`, `E names N of M` for a listing that is not what it should be, or `E wrong TEXT`. Only the standard library, so that
another one starts soon.
"""

import json
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile

RECORD = 16


def say(text):
    os.write(1, text.encode(errors="replace") + b"\n")


class Wrong(Exception):
    pass


def same(got, want, what):
    if got != want:
        first = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        raise Wrong(f"{what}: {len(got)} bytes for {len(want)}, other at {first}")


class Reader:
    def __init__(self, places, seed):
        self.places, self.random = places, random.Random(seed)

    def truth(self, place, path):
        with open(os.path.join(place["truth"], path), "rb") as file:
            return file.read()

    def whole(self, place, path):
        with open(os.path.join(place["where"], path), "rb") as file:
            same(file.read(), self.truth(place, path), "all of it")

    def offsets(self, place, path):
        want = self.truth(place, path)
        with open(os.path.join(place["where"], path), "rb", buffering=0) as file:
            for _ in range(8):
                at = self.random.randrange(len(want) + 10)
                length = self.random.choice([0, 1, 7, 4096, 100_000, len(want)])
                same(os.pread(file.fileno(), length, at), want[at : at + length], f"{length} bytes at {at}")

    def mapped(self, place, path):
        want = self.truth(place, path)
        with open(os.path.join(place["where"], path), "rb") as file:
            with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as memory:
                for _ in range(4):
                    at = self.random.randrange(len(want))
                    same(memory[at : at + 5000], want[at : at + 5000], f"mapped at {at}")

    def stat(self, place, path):
        size = os.stat(os.path.join(place["where"], path)).st_size
        want = os.stat(os.path.join(place["truth"], path)).st_size
        if size != want:
            raise Wrong(f"a size of {size} for {want}")

    def listing(self, place, path):
        directory = os.path.dirname(path)
        names = [name for name in os.listdir(os.path.join(place["where"], directory)) if name[0] != "." and name != "zarr.json"]
        want = os.listdir(os.path.join(place["truth"], directory))
        if sorted(names) != sorted(want):
            return f"names {len(names)} of {len(want)}"

    def absent(self, place, path):
        try:
            os.stat(os.path.join(place["where"], os.path.dirname(path), "nothing"))
        except FileNotFoundError:
            return
        raise Wrong("what is not there is there")

    def document(self, place, path):
        """What `json` gives of a document has no codec left."""
        array = path.split("/")[0]
        for name, key in ((".zarray", "compressor"), ("zarr.json", "codecs")):
            try:
                with open(os.path.join(place["where"], array, name), "rb") as file:
                    shown = json.load(file)
            except FileNotFoundError:
                continue
            if shown[key] and [codec["name"] for codec in shown[key]] != ["bytes"]:
                raise Wrong(f"{name}: {shown[key]}")
            return
        raise FileNotFoundError(2, "neither document")

    def copy(self, place, path):
        """cp of an array."""
        array = path.split("/")[0]
        with tempfile.TemporaryDirectory(dir=place["room"]) as room:
            done = subprocess.run(["cp", "-r", os.path.join(place["where"], array), room], capture_output=True, text=True)
            for here, _, files in os.walk(os.path.join(place["truth"], array)):
                for name in files:
                    key = os.path.relpath(os.path.join(here, name), place["truth"])
                    # What cp could not read it leaves empty, or out, and says so.
                    copied = os.path.join(room, key)
                    if os.path.exists(copied) and os.stat(copied).st_size:
                        with open(copied, "rb") as file:
                            same(file.read(), self.truth(place, key), f"cp of {key}")
                    elif done.returncode == 0:
                        raise Wrong(f"cp left {key} out, and said nothing")
            if done.returncode != 0:
                # The kind of the error is told by its words.
                words = {os.strerror(number): number for number in (2, 5, 20, 103, 107, 110, 116)}
                for text, number in words.items():
                    if text in done.stderr:
                        raise OSError(number, text)
                raise Wrong(f"cp: {done.stderr[-300:]}")

    def versioned(self, place, path):
        """A chunk that is replaced again and again: all of it is of one version, whichever way it is read."""
        length = place["lengths"][path]
        with open(os.path.join(place["where"], path), "rb", buffering=0) as file:
            parts, at = [], 0
            step = self.random.choice([4096, 65_536, length])
            while part := os.pread(file.fileno(), step, at):
                parts.append(part)
                at += len(part)
        got = b"".join(parts)
        if len(got) != length or got != got[:RECORD] * (length // RECORD):
            versions = {got[i : i + 8] for i in range(0, len(got), RECORD)}
            raise Wrong(f"{len(got)} bytes for {length}, a mix of {len(versions)} versions")
        if int.from_bytes(got[8:RECORD], "little") != place["numbers"][path]:
            raise Wrong("the content of another chunk")
        return f"ok {int.from_bytes(got[:8], 'little')}"

    def go(self):
        while True:
            place = self.random.choice(self.places)
            kind, path = self.random.choice(place["kinds"]), self.random.choice(place["files"])
            say(f"B {kind} {place['name']} {path}")
            try:
                say(f"E {getattr(self, kind)(place, path) or 'ok'}")
            except OSError as problem:
                say(f"E errno {problem.errno}")
            except Wrong as problem:
                say(f"E wrong {problem}")


if __name__ == "__main__":
    # Ends at once, as cat does.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with open(sys.argv[1]) as file:
        Reader(json.load(file), int(sys.argv[2])).go()
