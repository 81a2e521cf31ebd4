"""Slow servers and failing ones: how long they are waited for, and how often they are asked."""

import errno
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from support.s3 import fault
from test_s3 import double, put, small_array  # noqa: F401

# Bytes of a body that give its reader the whole time anew.
WINDOW = 8 << 20


def steady(rate, log):
    """A body of `rate` bytes per second. `log` has when each began, and what came of it."""

    def act(request):
        content = memoryview(request.double.objects[request.key])
        log.append(time.monotonic())
        request.send(200, b"", request.headers_of(request.double.objects[request.key]), length=len(content))
        for at in range(0, len(content), 1 << 18):
            if request.double.released.wait(max(0, log[-1] + at / rate - time.monotonic())):
                return
            try:
                request.handler.wfile.write(content[at : at + (1 << 18)])
            except OSError:
                return

    return act


@pytest.fixture
def large(double):
    """A mounted array of a chunk of five windows, with a timeout of a second and a half."""
    document = {
        "zarr_format": 2, "shape": [5 * WINDOW], "chunks": [5 * WINDOW], "dtype": "|u1", "compressor": None, "filters": None,
        "fill_value": 0, "order": "C",
    }
    put(double, "a", {".zarray": json.dumps(document).encode(), "0": bytes(range(256)) * (5 * WINDOW // 256)})
    double.timeout = 1.5
    double.view = double.mount("s3://b/a", "--timeout", str(double.timeout))
    return double


def test_a_body_may_take_longer_than_the_timeout_if_it_keeps_coming(large):
    """The third of the time for each window: two and a half seconds in all."""
    log = []
    large.faults.append(fault(steady(3 * WINDOW / large.timeout, log), kinds="GET", key="a/0"))
    start = time.monotonic()
    assert (large.view / "0").read_bytes() == large.objects["a/0"]
    assert time.monotonic() - start > 1.2 * large.timeout and len(log) == 1


def test_a_body_that_comes_too_slowly_ends_at_the_deadline(large):
    """Three quarters of a window in the time of one; there is never silence."""
    log = []
    large.faults.append(fault(steady(0.75 * WINDOW / large.timeout, log), kinds="GET", key="a/0"))
    start = time.monotonic()
    with pytest.raises(OSError) as problem:
        (large.view / "0").read_bytes()
    assert problem.value.errno == errno.ETIMEDOUT and len(log) == 1
    assert large.timeout - 0.2 < time.monotonic() - start < 2 * large.timeout


def test_repetitions_are_few_and_further_and_further_apart(double):
    """By chance, so that those who failed together do not come back together."""
    _, files = small_array((120, 120), (10, 10), "/")
    put(double, "a", files)
    view = double.mount("s3://b/a", "--timeout", "30")
    asked = {}

    def judge(request):
        """Rows 0 to 3 fail by GET, to 7 by HEAD, to 11 by LIST."""
        fails = request.kind == ("GET", "HEAD", "LIST")[int(request.key.split("/")[1]) // 4]
        if fails:
            asked.setdefault(request.key, []).append(time.monotonic())
            request.error(503, "SlowDown")
        return fails

    double.faults.append(judge)

    def look(row):
        with pytest.raises(OSError) as problem:
            (view / f"{row}/5").read_bytes() if row < 8 else os.listdir(view / f"{row}")
        assert problem.value.errno == errno.EIO

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(look, range(12)))
    pauses = np.array([np.diff(times) for times in asked.values()])
    assert pauses.shape == (12, 6), "seven times each, and no more"
    assert pauses.min() > 0.09, "none at once"
    assert pauses[:, 3:].mean() > pauses[:, 0].mean() + 0.08, "growing"
    assert pauses[:, 5].std() > 0.03, "of chance length"
