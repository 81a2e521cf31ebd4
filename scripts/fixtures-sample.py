#!/usr/bin/env python3
"""Writes tests/data/sample.json: the values of tests/data/sample.zip as netcdf-c reads them (netCDF4 wheel, which reads
directories only, so the archive is unpacked first). For each array its type, its shape, and its elements, little-endian and in
C order, as hexadecimal digits."""
import json
import pathlib
import tempfile
import zipfile

import netCDF4
import numpy

ARRAYS = ["v_i4", "v_f8", "f_deflate_shuffle", "f_blosc_zstd", "f_fletcher_deflate_shuffle", "e_be_i2", "chunk_char", "u_var", "hippo/w"]
data = pathlib.Path(__file__).parent.parent / "tests" / "data"

with tempfile.TemporaryDirectory() as room:
    zipfile.ZipFile(data / "sample.zip").extractall(room)
    (root,) = pathlib.Path(room).iterdir()
    dataset = netCDF4.Dataset(f"file://{root}#mode=nczarr,file")
    dataset.set_auto_maskandscale(False)
    dataset.set_auto_chartostring(False)
    arrays = {}
    for name in ARRAYS:
        values = numpy.asarray(dataset[name][...])
        values = values.astype(values.dtype.newbyteorder("<"))
        arrays[name] = {"dtype": values.dtype.str, "shape": values.shape, "values": values.tobytes().hex()}
    (data / "sample.json").write_text(json.dumps(arrays, indent=1) + "\n")
