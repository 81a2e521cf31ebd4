"""`read_netcdf.py URL OUT`: everything that netcdf-c knows about a dataset, pickled.

A process of its own: some releases of netcdf-c crash on some datasets, and a crash must fail one test only.
"""

import pickle
import sys

import netCDF4


def values(variable):
    """The values of a variable, or the error that reading them gives."""
    try:
        return variable[...]
    except RuntimeError as error:
        return error


def visit(group, path, found):
    for name, dimension in group.dimensions.items():
        found["dimensions"][path + name] = (len(dimension), dimension.isunlimited())
    for name in group.ncattrs():
        found["attributes"][path + "@" + name] = group.getncattr(name)
    for name, variable in group.variables.items():
        variable.set_auto_maskandscale(False)
        variable.set_auto_chartostring(False)
        found["variables"][path + name] = {
            "dtype": "str" if variable.dtype is str else variable.dtype.str.lstrip("<>|="),
            "dimensions": list(variable.dimensions),
            "shape": tuple(variable.shape),
            "attributes": {key: variable.getncattr(key) for key in variable.ncattrs()},
            "values": values(variable),
        }
    for name, inner in group.groups.items():
        visit(inner, f"{path}{name}/", found)


def main():
    found = {"dimensions": {}, "variables": {}, "attributes": {}, "version": netCDF4.getlibversion()}
    dataset = netCDF4.Dataset(sys.argv[1])
    visit(dataset, "", found)
    with open(sys.argv[2], "wb") as out:
        pickle.dump(found, out)
    dataset.close()


main()
