"""`read_arrays.py LIBRARY`: for each line on stdin, the directory of an array, pickles its values as that library reads them.

A process of its own for each: GDAL comes with the distribution and its Python, zarrs takes the place of zarr-python's own
decoding for the whole process, and what crashes there fails one test only.
"""

import json
import os
import pickle
import sys
import warnings


def zarr_format(directory):
    return 3 if os.path.exists(os.path.join(directory, "zarr.json")) else 2


def by_gdal():
    from osgeo import gdal

    gdal.UseExceptions()

    def read(directory):
        dataset = gdal.OpenEx(directory, gdal.OF_MULTIDIM_RASTER, allowed_drivers=["Zarr"])
        root = dataset.GetRootGroup()
        # With it come the arrays that have the names of its axes.
        names, name = root.GetMDArrayNames(), os.path.basename(directory.rstrip("/"))
        array = root.OpenMDArray(name if name in names else names[0])
        values = array.ReadAsArray()
        if values is None:
            raise RuntimeError("no values")
        return values.reshape([dimension.GetSize() for dimension in array.GetDimensions()])

    return read


def by_zarrs():
    import zarr
    import zarrs

    # Strict: an error where it would leave the decoding to zarr-python.
    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True})

    def read(directory):
        array = zarr.open_array(directory, mode="r", zarr_format=zarr_format(directory))
        assert isinstance(array.async_array.codec_pipeline, zarrs.ZarrsCodecPipeline)
        return array[...]

    return read


def by_xarray():
    import xarray

    def read(directory):
        version = zarr_format(directory)
        document, names = ("zarr.json", "dimension_names") if version == 3 else (".zattrs", "_ARRAY_DIMENSIONS")
        try:
            with open(os.path.join(directory, document), encoding="utf-8") as file:
                dimensions = json.load(file).get(names)
        except FileNotFoundError:
            dimensions = None
        if not dimensions or not all(dimensions) or len(set(dimensions)) < len(dimensions):
            raise ValueError("its axes have no names")
        parent, name = os.path.split(directory.rstrip("/"))
        options = {"consolidated": False, "chunks": None, "decode_cf": False, "zarr_format": version}
        with xarray.open_zarr(parent, **options) as found:
            assert list(found[name].dims) == dimensions, f"xarray has {found[name].dims}, shown are {dimensions}"
            return found[name].values

    return read


def main():
    import numpy

    warnings.simplefilter("ignore")
    read = globals()[f"by_{sys.argv[1]}"]()
    out = sys.stdout.buffer
    for line in sys.stdin:
        try:
            values = numpy.asarray(read(line.rstrip("\n")))
            answer = (values.dtype.str, values.shape, values.tobytes())
            if values.dtype.hasobject:
                raise TypeError("objects")
        except Exception as error:  # each library has errors of its own
            answer = f"{type(error).__name__}: {error}"
        pickle.dump(answer, out, protocol=4)
        out.flush()


main()
