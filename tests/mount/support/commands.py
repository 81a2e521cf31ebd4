"""Running the program's commands."""

import subprocess

from support.mounting import binary

STORES = ["n5/rust.n5", "zarr2/compressors.zarr", "nczarr/head_lemon.zarr", "zip/nczarr_v492.zip"]
USAGE, NOT_FOUND, DENIED, CORRUPT, UNSUPPORTED, UNAVAILABLE = range(2, 8)


def run(*arguments, timeout=60, text=True, **settings):
    command = [str(binary()), *(str(argument) for argument in arguments)]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=text, timeout=timeout, **settings)


def output(*arguments, **settings):
    done = run(*arguments, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout
