"""The stores of `tests/data`: unpacked once, described by their manifest, with their decoded truth.

The archives hold stores written by other people's software and arrays read back by other people's readers; nothing in
them comes from chunkmount. `tests/data/README.md` names the writers.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cached_property
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data"
SAMPLE_ZIP = DATA / "sample.zip"


def unpacked(archive):
    """The directory of an unpacked archive, unpacked at most once for each content of it."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
    base = ROOT / "target" / "mount-tests"
    base.mkdir(parents=True, exist_ok=True)
    there = base / f"{archive.name.split('.')[0]}-{digest}"
    if not there.exists():
        fresh = Path(tempfile.mkdtemp(dir=base))
        with tarfile.open(archive) as tar:
            # The names are our own; the filter of the standard library would refuse the symlinks that lead nowhere,
            # which are the point of one of the broken stores.
            tar.extractall(fresh, filter="fully_trusted")
        fresh.chmod(0o755)
        try:
            fresh.rename(there)
        except OSError:  # another run was faster
            shutil.rmtree(fresh)
    return there


def with_floats(value):
    """JSON of the manifest, in which numbers that JSON lacks are written `{"$float": "NaN"}`."""
    if isinstance(value, dict):
        if set(value) == {"$float"}:
            return float(value["$float"].replace("Infinity", "inf"))
        return {key: with_floats(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_floats(inner) for inner in value]
    return value


class Record:
    """One array of a store: where it is, what its writer said about it, and its values."""

    def __init__(self, base, fields):
        self.base = base
        self.fields = fields

    def __getattr__(self, name):
        return self.fields.get(name)

    def load(self, truth):
        return np.load(self.base / truth)

    @property
    def has_values(self):
        return bool(self.truth) and self.truth.endswith(".npy")

    @property
    def items(self):
        """The elements of an object array, from JSON."""
        return json.loads((self.base / self.truth).read_text(encoding="utf-8"))["items"]

    def in_view(self, values, axes="zarr"):
        """Turns `values` from the axes of the truth to the axes of the mount.

        The mount shows N5's axes reversed, and with `axes="source"` as N5 has them.
        """
        if self.axes == "C":
            return values
        reverse = (self.axes == "n5-native") == (axes == "zarr")
        return values.T if reverse else values

    def accepted(self, axes="zarr"):
        """The value arrays that are right: one, or two where the store contradicts itself."""
        truths = [self.truth]
        if self.ambiguous:
            truths.append(self.truth_zarr_view)
        return [self.in_view(self.load(truth), axes) for truth in truths]


class Corpus:
    """A directory of stores with a `manifest.json`."""

    def __init__(self, base):
        self.base = Path(base)

    @cached_property
    def manifest(self):
        return json.loads((self.base / "manifest.json").read_text(encoding="utf-8"))

    @cached_property
    def stores(self):
        return {store["store"]: store for store in self.manifest["stores"]}

    @cached_property
    def records(self):
        """Records by store. A zipped copy has the fields of the array that it is a copy of."""
        by_id = {fields["id"]: fields for fields in self.manifest["arrays"]}
        records = {}
        for fields in self.manifest["arrays"]:
            whole = {**by_id[fields["same_as"]], **fields} if fields.get("same_as") else fields
            records.setdefault(fields["store"], []).append(Record(self.base, whole))
        return records

    def path(self, store):
        return self.base / store


def stores(archive="stores.tar.xz"):
    return Corpus(unpacked(DATA / archive))


def broken(archive="bad.tar.xz"):
    """The directory of the broken stores, and their cases."""
    base = unpacked(DATA / archive)
    return base, json.loads((base / "manifest.json").read_text(encoding="utf-8"))["cases"]


def freshly_written(out, seed):
    """Has third-party writers write new stores, different for each seed."""
    script = ROOT / "scripts" / "fixtures.py"
    subprocess.run([sys.executable, script, "--seed", str(seed), out], check=True, timeout=240)
    return Corpus(out)


def entries(directory):
    """All files below a directory as relative paths, directories not followed through links."""
    found = []
    for here, _, files in os.walk(directory):
        found += [os.path.relpath(os.path.join(here, name), directory) for name in files]
    return sorted(found)
