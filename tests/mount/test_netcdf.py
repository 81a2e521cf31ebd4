"""netcdf-c reads a mounted NCZarr dataset as NCZarr: dimensions, unlimited ones, types, scalars, values, attributes.

Two releases: the one inside the netCDF4 wheel, and ncdump of the distribution.
"""

import json
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from support import data
from support.checks import root
from support.reading import difference

CORPUS = data.stores()
READER = Path(__file__).parent / "support" / "read_netcdf.py"


def nczarr_stores():
    for store in sorted(CORPUS.stores):
        records = CORPUS.records[store]
        if records[0].nc_dims is not None:
            yield store


def netcdf(url, out):
    """What the netCDF4 wheel finds at `url`."""
    run = subprocess.run([sys.executable, READER, url, out], capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, f"netcdf-c: status {run.returncode}\n{run.stderr[-2000:]}"
    return pickle.loads(Path(out).read_bytes())


def modes(record):
    """The mode of a dataset once it is a mounted directory."""
    return ",".join(part for part in record.modes.split(",") if part not in ("file", "zip")) + ",file"


DIRECTORIES = [store for store in CORPUS.stores if CORPUS.stores[store]["container"] == "dir"]


def natively(source, record, room):
    """What the wheel finds in a source that is not mounted, or None if it cannot read it.

    Released wheels have no zip, so that an archive is unpacked, or is a copy of a directory that is here.
    """
    if record.same_as:
        source = record.base / next(store for store in DIRECTORIES if record.same_as.startswith(store.split(".")[0] + "/"))
    elif source.is_file():
        with zipfile.ZipFile(source) as archive:
            archive.extractall(room / "unpacked")
        source = room / "unpacked" / (record.zip_prefix or "")
    try:
        return netcdf(f"file://{source}#mode={modes(record)}", room / "native")
    except AssertionError:
        return None


def sizes(found, path, variable):
    """Each dimension of a variable, looked up as netCDF scopes it: in its own group, then in those around it."""
    result = []
    for name in variable["dimensions"]:
        parts = path.split("/")[:-1]
        while "/".join([*parts, name]) not in found["dimensions"]:
            assert parts, f"dimension {name} of {path} is nowhere"
            parts.pop()
        result.append(found["dimensions"]["/".join([*parts, name])])
    return result


@pytest.mark.parametrize("store", list(nczarr_stores()))
def test_the_wheel_reads_the_mount(store, corpus, mount, room):
    """NCZarr as NCZarr; pure Zarr at least as well as the wheel reads the source itself."""
    records = corpus.records[store]
    view = root(mount(corpus.path(store)), records)
    plain = "nczarr" not in records[0].modes or "noxarray" in records[0].modes
    native = natively(corpus.path(store), records[0], room) if plain else None
    if plain and native is None:
        return  # netcdf-c does not read its own dataset; what other readers make of it is tested elsewhere
    found = netcdf(f"file://{view}#mode={modes(records[0])}", room / "found")
    problems = []
    for record in records:
        have = found["variables"].get(record.array)
        if have is None:
            if not plain or record.array in native["variables"]:
                problems.append(f"{record.array} is not there")
            continue
        names = [name.split("/")[-1] for name in record.nc_dims]
        if plain and record.array in native["variables"]:
            names = native["variables"][record.array]["dimensions"]
        if have["dimensions"] != names:
            problems.append(f"{record.array}: dimensions {have['dimensions']}, truth {names}")
        if len(have["shape"]) != len(names):
            problems.append(f"{record.array}: {len(have['shape'])} axes, {len(names)} dimensions")
        if have["dtype"] != record.nc_type and not plain:
            problems.append(f"{record.array}: type {have['dtype']}, truth {record.nc_type}")
        if [size for size, _ in sizes(found, record.array, have)] != list(have["shape"]):
            problems.append(f"{record.array}: shape {have['shape']} is not that of its dimensions")
        if not record.has_values or record.nc_type == "str":
            continue  # this release does not get the strings right that it wrote itself
        wrong = [difference(np.asarray(have["values"]), want) for want in record.accepted()]
        if all(wrong):
            problems.append(f"{record.array}: {wrong[0]}")
    assert not problems, "\n".join(problems[:40])


@pytest.mark.parametrize("store", [store for store in nczarr_stores() if store in DIRECTORIES])
def test_unlimited_dimensions_stay_unlimited(store, corpus, mount, room):
    record = corpus.records[store][0]
    if "nczarr" not in record.modes:
        return  # pure Zarr has no unlimited dimensions
    root = corpus.path(store)
    unlimited, limited = set(), set()
    for document in root.rglob(".zattrs"):
        if "_nczarr_group" not in document.read_text():
            continue  # netcdf-c up to 4.9.2 writes no unlimited dimensions, and text that is not quite JSON
        group = json.loads(document.read_text())["_nczarr_group"]
        for name, size in (group.get("dimensions") or {}).items():
            path = "/".join([*document.parent.relative_to(root).parts, name])
            (unlimited if isinstance(size, dict) and size.get("unlimited") else limited).add(path)
    found = netcdf(f"file://{mount(root).where}#mode={modes(record)}", room / "found")
    for path, (_, is_unlimited) in found["dimensions"].items():
        assert is_unlimited == (path in unlimited), path
    assert unlimited | limited <= set(found["dimensions"])


def test_the_wheel_reads_the_bundled_zip_with_its_attributes(mount, room):
    view = mount(data.SAMPLE_ZIP)
    found = netcdf(f"file://{view.where}#mode=nczarr,file", room / "found")
    assert found["attributes"]["@title"] == "echo fibre"
    assert found["dimensions"]["time"] == (5, True)
    assert found["dimensions"]["lat"] == (13, False)
    assert found["variables"]["lat"]["attributes"]["units"] == "degrees_north"
    assert found["variables"]["delta_scalar"]["dimensions"] == []
    assert found["variables"]["filled"]["attributes"]["_FillValue"] == np.float32(-999.5)


SMALL = """netcdf small {
dimensions:
\ty = 5 ;
\tx = 7 ;
variables:
\tint count(y, x) ;
\t\tcount:units = "1" ;
\tdouble height(y) ;
\tfloat mass(x) ;
data:
 count = %s ;
 height = 0.5, 1.5, 2.5, 3.5, 4.5 ;
 mass = 1, 2, 3, 4, 5, 6, 7.25 ;
}
""" % ", ".join(str(n * n) for n in range(35))


@pytest.mark.parametrize("mode", ["nczarr,file", "zarr,file"])
def test_ncdump_prints_the_mount_as_it_prints_the_source(mode, mount, room):
    """The distribution's ncgen writes a dataset; its ncdump prints the same for the dataset and for the mount."""
    (room / "small.cdl").write_text(SMALL)
    source = room / "source" / "small"
    source.parent.mkdir()
    subprocess.run(["ncgen", "-o", f"file://{source}#mode={mode}", room / "small.cdl"], check=True, timeout=60)
    (room / "shown").mkdir()
    view = mount(source, where=room / "shown" / "small")

    def dump(path):
        run = subprocess.run(["ncdump", f"file://{path}#mode={mode}"], capture_output=True, text=True, timeout=60)
        assert run.returncode == 0, run.stderr
        # The mount has today's spelling of the metadata, which older releases take for attributes.
        lines = [line for line in run.stdout.splitlines() if ":_nczarr_" not in line]
        return [line for line in lines if line and line != "// global attributes:"]

    assert dump(source) == dump(view.where)


def unread():
    """Arrays whose truth no reader gave: netcdf-c up to 4.9.0 has spellings of its own that only the same releases read.

    One of these is the ncdump of Debian 12; with a newer one there is no reader of them.
    """
    release = subprocess.run(["ncdump"], capture_output=True, text=True).stderr.partition("library version ")[2].split()[0]
    if release == "4.9.0":
        yield from (r for s in CORPUS.stores for r in CORPUS.records[s] if r.format == "nczarr" and (r.reader or "").startswith("none"))


@pytest.mark.parametrize("record", list(unread()), ids=lambda record: record.id)
def test_the_truth_is_what_its_own_release_reads(record, room):
    """In the mode for pure Zarr, for in the other it crashes on other arrays of the stores."""
    source = CORPUS.path(record.store)
    if source.is_file():
        with zipfile.ZipFile(source) as archive:
            archive.extractall(room / "unpacked")
        source = room / "unpacked" / (record.zip_prefix or "")
    command = ["ncdump", "-p", "9,17", "-v", record.array, f"file://{source}#mode=zarr,file"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    told = told.partition(f"\n {record.array} =\n")[2].partition(";")[0]
    want = record.load(record.truth)
    if want.dtype.kind == "S":
        rows = [line.strip().rstrip(",").strip().strip('"') for line in told.strip().splitlines()]
        assert rows == [b"".join(row).decode() for row in want]
    else:
        got = [number if number.strip() != "_" else "nan" for number in told.split(",")]
        assert np.array_equal(np.array(got, want.dtype).reshape(want.shape), want)
