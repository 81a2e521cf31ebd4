"""A server that misbehaves on demand in a process of its own, for network namespaces: `double_server.py DIRECTORY` has the files of a
directory in the bucket `b` below `a`, says its address, and ends with its input."""

import sys

from .s3 import Double

if __name__ == "__main__":
    double = Double()
    double.upload("a", sys.argv[1])
    print(double.url, flush=True)
    sys.stdin.read()
    double.stop()
