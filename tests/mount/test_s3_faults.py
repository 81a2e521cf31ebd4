"""A server of objects that misbehaves: the right bytes or the right error, in time; never absence, zeros or a short listing."""

import errno
import json
import os
import socket
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from support.reading import by_zarr
from support.s3 import clean_env, cut, drip, fault, silent, status
from test_s3 import double, fails, put, small_array  # noqa: F401

# Seconds that a request may take in these tests.
TIMEOUT = 3


@pytest.fixture
def shown(double):
    """A mounted array of ten by ten chunks, whose listing does not tell of the chunks `9/*`: it is nested."""
    values, files = small_array((100, 100), (10, 10), "/")
    put(double, "a", files)
    double.view = double.mount("s3://b/a", "--timeout", str(TIMEOUT))
    double.values = values
    double.log.clear()
    return double


def chunk(double, name):
    """The content of a chunk file, checked; an error is a number."""
    start = time.monotonic()
    try:
        with open(double.view / name, "rb") as file:
            got = file.read()
    except OSError as problem:
        return problem.errno, time.monotonic() - start
    i, j = map(int, name.split("/"))
    want = double.values[i * 10 : i * 10 + 10, j * 10 : j * 10 + 10]
    assert got == want.tobytes(), f"{name}: wrong bytes"
    return 0, time.monotonic() - start


@pytest.mark.parametrize("code", [500, 503, 429])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("kind", ["GET", "HEAD", "LIST"])
def test_passing_failures_are_not_seen(shown, code, times, kind):
    shown.faults.append(fault(status(code), kinds=kind, times=times))
    if kind == "LIST":
        assert sorted(os.listdir(shown.view / "3")) == [str(i) for i in range(10)]
    else:
        assert chunk(shown, "3/4")[0] == 0
    assert shown.count()[kind] == times + 1


@pytest.mark.parametrize("code", [500, 503, 429])
@pytest.mark.parametrize("kind", ["GET", "HEAD", "LIST"])
def test_lasting_failures_are_errors(shown, code, kind):
    shown.faults.append(fault(status(code), kinds=kind))
    start = time.monotonic()
    if kind == "LIST":
        with pytest.raises(OSError) as problem:
            os.listdir(shown.view / "3")
        assert problem.value.errno == errno.EIO
    else:
        assert chunk(shown, "3/4")[0] == errno.EIO
    assert time.monotonic() - start < TIMEOUT + 2
    assert str(code) in shown.view.text()
    shown.faults.clear()
    time.sleep(1.1)
    assert chunk(shown, "3/4")[0] == 0, "it recovers"


def test_what_is_refused_or_not_told_of_is_never_filled(double):
    """With --fill-missing only what the server says is absent consists of fill values."""
    values, files = small_array((100, 100), (10, 10), "/")
    put(double, "a", files)
    for i in range(3):
        del double.objects[f"a/8/{i}"]
    double.view, double.values = double.mount("s3://b/a", "--timeout", "1", "--fill-missing"), values
    for j, (kind, code, error) in enumerate([("GET", 503, errno.EIO), ("HEAD", 503, errno.EIO), ("HEAD", 403, errno.EACCES)]):
        double.faults.append(fault(status(code), kinds=kind))
        # It is there; and it is not, which nobody says.
        assert chunk(double, f"3/{j}")[0] == error
        assert kind == "GET" or chunk(double, f"8/{j}")[0] == error
        double.faults.clear()
    time.sleep(1.1)
    for j in range(3):
        assert chunk(double, f"3/{j}")[0] == 0
        assert (double.view / f"8/{j}").read_bytes() == bytes(400)


@pytest.mark.parametrize("how, after", [("failed", 0), ("failed", 1), ("cut", 0), ("silent", 1)])
def test_a_listing_of_which_a_later_page_fails_is_an_error(double, how, after):
    """`after` more pages come well beside the first one: what they tell is no listing without the rest."""
    for name, separator in [("nested", "/"), ("flat", ".")]:
        _, files = small_array((100, 10), (10, 10), separator)
        put(double, f"s/{name}", files)
    put(double, "s/foreign", {f"f{i:02}": b"x" for i in range(12)})
    listings = {
        "nested": {".zarray", *map(str, range(10))}, "flat": {".zarray", *(f"{i}.0" for i in range(10))},
        "foreign": {f"f{i:02}" for i in range(12)},
    }
    double.page = 4
    view = double.mount("s3://b/s", "--timeout", "1")
    acts = {"failed": status(503), "silent": silent, "cut": lambda request: request.send(200, b"<ListBucketResult><Contents>")}
    fail = [fault(acts[how], kinds="LIST", key=f"s/{name}/", after=after) for name in listings]
    double.faults.append(lambda request: "continuation-token" in request.query and any(one(request) for one in fail))

    def errors(name):
        with pytest.raises(OSError) as problem:
            os.listdir(view / name)
        return problem.value.errno

    with ThreadPoolExecutor(len(listings)) as pool:
        # Repetitions may come to the deadline before they come to their end.
        assert set(pool.map(errors, listings)) <= {errno.ETIMEDOUT, errno.EIO}
    double.faults.clear()
    assert {name: set(os.listdir(view / name)) for name in listings} == listings, "it recovers"


@pytest.mark.parametrize("refresh", [(), ("--refresh", "0.2")], ids=["", "refresh"])
@pytest.mark.parametrize("document", [".zarray", ".zattrs"])
def test_an_array_that_was_not_told_of_is_there_when_it_is(double, document, refresh):
    """What a server fails to say when an array is first looked at is no fault of the array: it must not stay broken, and its chunks
    must not have the sizes of what is stored."""
    values, files = small_array()
    meta = json.loads(files.pop(".zarray")) | {"compressor": {"id": "zlib", "level": 1}}
    put(double, "s/a", {name: zlib.compress(content) for name, content in files.items() if name != ".zattrs"})
    put(double, "s/a", {".zarray": json.dumps(meta).encode(), ".zattrs": b'{"unit": "nm"}'})
    double.put("s/.zgroup", b'{"zarr_format": 2}')
    view = double.mount("s3://b/s", "--timeout", "1", *refresh)
    double.faults.append(fault(status(503), kinds="GET", key=f"s/a/{document}"))
    try:
        assert os.stat(view / "a" / "0.0").st_size == 400
    except OSError as problem:
        assert problem.errno in (errno.EIO, errno.ETIMEDOUT)
    with pytest.raises(OSError) as problem:
        (view / "a" / document).read_bytes()
    assert problem.value.errno in (errno.EIO, errno.ETIMEDOUT)
    # What is not needed to read the chunks keeps nobody from it.
    assert document == ".zarray" or (view / "a" / "1.1").read_bytes() == files["1.1"]
    double.faults.clear()
    time.sleep(1.1)
    assert (by_zarr(view / "a") == values).all()
    assert json.loads((view / "a" / ".zattrs").read_text()) == {"unit": "nm"}
    assert os.stat(view / "a" / "0.0").st_size == 400


def test_refused_is_not_absent(shown):
    shown.faults.append(fault(status(403, "AccessDenied"), key="a/3/4"))
    assert chunk(shown, "3/4")[0] == errno.EACCES
    assert not os.path.lexists(shown.view / "3" / "99") and chunk(shown, "3/5")[0] == 0


def test_refused_is_not_absent_either_where_there_is_nothing(double):
    """Who may not list is not told what is absent: 403 is the answer for that too, to HEAD without a word."""
    values, files = small_array((100, 100), (10, 10), "/")
    put(double, "a", files)
    del double.objects["a/3/4"], double.objects["a/3/6"]

    def judge(request):
        is_refused = request.kind == "LIST" or request.key not in double.objects
        if is_refused:
            request.error(403, "AccessDenied")
        return is_refused

    double.view, double.values = double.mount("s3://b/a"), values
    double.faults.append(judge)
    double.log.clear()
    with pytest.raises(PermissionError):
        os.stat(double.view / "3/4")
    assert chunk(double, "3/4")[0] == errno.EACCES and chunk(double, "3/6")[0] == errno.EACCES
    assert ("LIST", "a/3/") not in double.log and chunk(double, "3/5")[0] == 0
    # Nor is a listing made of what was found.
    with pytest.raises(PermissionError):
        os.listdir(double.view / "3")


def test_a_bucket_that_is_gone_is_not_an_absent_chunk(shown):
    shown.faults.append(fault(status(404, "NoSuchBucket"), kinds="GET LIST"))
    assert chunk(shown, "3/4")[0] in (errno.EIO, errno.ESTALE)
    with pytest.raises(OSError) as problem:
        os.listdir(shown.view / "3")
    assert problem.value.errno == errno.EIO


@pytest.mark.parametrize("kind", ["GET", "HEAD", "LIST"])
def test_silence_ends_at_the_deadline(shown, kind):
    shown.faults.append(fault(silent, kinds=kind, key="a/3/" if kind == "LIST" else "a/3/4"))
    start = time.monotonic()
    if kind == "LIST":
        with pytest.raises(OSError) as problem:
            os.listdir(shown.view / "3")
        assert problem.value.errno == errno.ETIMEDOUT
    else:
        assert chunk(shown, "3/4")[0] == errno.ETIMEDOUT
    took = time.monotonic() - start
    assert TIMEOUT - 0.5 < took < TIMEOUT + 2, "once, not twice"
    assert chunk(shown, "3/5")[0] == 0


def test_one_silent_connection_is_given_up_for_another(shown):
    shown.faults.append(fault(silent, kinds="GET", key="a/3/4", times=1))
    error, took = chunk(shown, "3/4")
    assert error == 0 and took < TIMEOUT


def test_a_drip_of_bytes_ends_at_the_deadline(shown):
    shown.faults.append(fault(drip, kinds="GET", key="a/3/4"))
    error, took = chunk(shown, "3/4")
    assert error == errno.ETIMEDOUT and took < TIMEOUT + 2


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("at", [0, 1, 200, -1])
def test_cut_bodies(shown, at, declared):
    shown.faults.append(fault(cut(at, declared), kinds="GET", key="a/3/4", times=1))
    assert chunk(shown, "3/4")[0] in (0, errno.EIO)
    shown.faults[:] = [fault(cut(at, declared), kinds="GET", key="a/3/5")]
    error, took = chunk(shown, "3/5")
    # A read that is resumed where it broke off comes to its end in pieces of 200.
    assert error in (0, errno.EIO, errno.ETIMEDOUT) and took < TIMEOUT + 2
    assert error != 0 or at == 200


def test_a_body_that_is_too_long(shown):
    def long(request):
        content = shown.objects[request.key]
        request.send(200, content + b"more", request.headers_of(content), length=len(content))

    shown.faults.append(fault(long, kinds="GET", key="a/3/4"))
    assert chunk(shown, "3/4")[0] in (0, errno.EIO)

    def longer(request):
        content = shown.objects[request.key] + b"more"
        request.send(200, content, request.headers_of(shown.objects[request.key]))

    shown.faults[:] = [fault(longer, kinds="GET", key="a/3/5")]
    assert chunk(shown, "3/5")[0] == errno.EIO


@pytest.fixture
def foreign(double):
    """A mounted file of no format, which is read by ranges."""
    content = bytes(range(256)) * 1200
    double.put("a/file", content)
    double.put("a/other", b"x")
    double.view = double.mount("s3://b/a", "--timeout", str(TIMEOUT))
    double.content = content
    return double


@pytest.mark.parametrize("how", [silent, drip])
def test_a_page_that_came_too_late_is_not_waited_for_twice(foreign, how):
    """When reading ahead fails, the kernel asks for the page once more."""
    # The first one is for the byte by which it is known that the file can be read.
    ranges = []
    foreign.faults.append(lambda request: ranges.append(request.handler.headers.get("Range")))
    foreign.faults.append(fault(how, kinds="GET", key="a/file", after=1))
    start = time.monotonic()
    with pytest.raises(OSError) as problem:
        (foreign.view / "file").read_bytes()
    took = time.monotonic() - start
    assert problem.value.errno == errno.ETIMEDOUT and TIMEOUT - 0.5 < took < 1.5 * TIMEOUT
    assert len(ranges) > 1 and all(ranges), "nor is all of it asked for"
    foreign.faults.clear()
    time.sleep(1.1)
    assert (foreign.view / "file").read_bytes() == foreign.content, "it recovers"


def test_a_range_answered_with_all_is_cut_to_the_range(foreign):
    def all_of_it(request):
        content = foreign.objects[request.key]
        request.send(200, content, request.headers_of(content))

    foreign.faults.append(fault(all_of_it, kinds="GET", key="a/file"))
    assert (foreign.view / "file").read_bytes() == foreign.content


def test_another_range_than_was_asked_for(foreign):
    def shifted(request):
        content = foreign.objects[request.key]
        part = request.slice(content)
        if part is None:
            return request.object()
        headers = request.headers_of(content)
        start, end = part[0] + 1, min(part[1] + 1, len(content))
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        request.send(206, content[start:end], headers)

    foreign.faults.append(fault(shifted, kinds="GET", key="a/file"))
    try:
        assert (foreign.view / "file").read_bytes() == foreign.content
    except OSError as problem:
        assert problem.errno == errno.EIO


def test_a_replaced_object_is_new_for_who_had_not_opened_it(shown):
    assert os.path.exists(shown.view / "3/4")
    old = shown.objects["a/3/4"]
    shown.objects["a/3/4"] = np.full((10, 10), 7, "<i4").tobytes()
    shown.log.clear()
    assert (np.fromfile(shown.view / "3/4", "<i4") == 7).all()
    # The version that was told is not there, and binds nobody: what is there is asked for and read, all within the one open.
    assert [kind for kind, key in shown.log if key == "a/3/4"] == ["GET", "HEAD", "GET"]
    assert "another version" not in shown.view.text()
    # What was opened is read at its version.
    with open(shown.view / "3/5", "rb") as file:
        shown.objects["a/3/5"] = old
        assert file.read() == shown.values[30:40, 50:60].tobytes()


@pytest.mark.parametrize("refresh", [(), ("--refresh", "0.2")], ids=["", "refresh"])
def test_what_is_deleted_and_put_back_is_new_for_who_opens_it_then(double, refresh):
    values, files = small_array((100, 100), (10, 10), "/")
    put(double, "s/a", files)
    double.put("s/file", b"old" * 50_000)
    new = {"a/3/6": bytes(400), "a/4/6": b"4" * 400, "a/3/4": b"x" * 400, "file": b"new" * 50_000}
    view = double.mount("s3://b/s", *refresh)
    # Looked up, and not opened.
    assert os.path.exists(view / "a/3/6") and os.path.exists(view / "a/4/6")
    with open(view / "file", "rb", buffering=0) as file, open(view / "a/3/4", "rb", buffering=0) as opened:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        assert file.read(99) == b"old" * 33
        for name, content in new.items():
            del double.objects[f"s/{name}"]
            double.put(f"s/{name}", content)
        for name in ("a/3/6", "a/4/6"):
            assert (view / name).read_bytes() == new[name]
        # Who has it open has the old bytes or none.
        assert opened.read() == values[30:40, 40:50].tobytes()
        with pytest.raises(OSError) as problem:
            os.pread(file.fileno(), 99, 140_000)
        assert problem.value.errno == errno.ESTALE
    # What was opened, or told with its length, stays what it was; with --refresh for so long.
    time.sleep(0.5)
    assert (view / "a/3/4").read_bytes() == (new["a/3/4"] if refresh else values[30:40, 40:50].tobytes())
    if refresh:
        assert (view / "file").read_bytes() == new["file"]
        # Also what was said to be absent in between.
        del double.objects["s/a/4/6"]
        time.sleep(0.5)
        assert not os.path.exists(view / "a/4/6")
        double.put("s/a/4/6", new["a/3/4"])
        time.sleep(0.5)
        assert (view / "a/4/6").read_bytes() == new["a/3/4"]


@pytest.mark.parametrize("honest", [True, False], ids=["if-match", "no-if-match"])
@pytest.mark.parametrize("at", [0, 1, 200, -1])
def test_an_object_replaced_while_its_body_breaks_off(double, at, honest):
    """What came before the break and what comes after it is of one version, also from a server that never minds which is wanted."""
    _, files = small_array((100, 100), (10, 10), "/")
    put(double, "s/a", files)
    double.put("s/file", b"old" * 80_000)
    view = double.mount("s3://b/s", "--timeout", str(TIMEOUT))

    def careless(request):
        if not honest:
            del request.handler.headers["If-Match"]

    def replaced_by(content):
        def act(request):
            cut(at)(request)
            double.put(request.key, content)

        return act

    seven = np.full((10, 10), 7, "<i4").tobytes()
    double.faults[:] = [careless, fault(replaced_by(seven), kinds="GET", key="s/a/3/4", times=1)]
    # Nobody has a byte of the old one.
    assert (view / "a/3/4").read_bytes() == seven
    double.faults[1:] = [fault(replaced_by(b"new" * 80_000), kinds="GET", key="s/file", times=1, after=1)]
    with open(view / "file", "rb") as file, pytest.raises(OSError) as problem:
        file.read()
    assert problem.value.errno == errno.ESTALE


def test_refresh_sees_a_replaced_object(double):
    values, files = small_array()
    put(double, "a", files)
    view = double.mount("s3://b/a", "--refresh", "0.2")
    assert (by_zarr(view / "") == values).all()
    double.objects["a/0.0"] = np.full((10, 10), 7, "<i4").tobytes()
    time.sleep(0.5)
    assert (np.fromfile(view / "0.0", "<i4") == 7).all()


def names(double):
    return sorted(os.listdir(double.view / "3"))


def test_listings_in_pages_with_empty_ones_and_disorder(shown):
    pages = {
        "": (["a/3/7", "a/3/0", "a/3/1"], "one"),
        "one": ([], "two"),
        "two": (["a/3/1", "a/3/9", "a/3/2", "a/3/3", "a/3/4"], "three"),
        "three": (["a/3/5", "a/3/6", "a/3/8", "a/3/0"], None),
    }

    def page(request):
        listed, token = pages[request.query.get("continuation-token", "")]
        request.list(names=listed, token=token)

    shown.faults.append(fault(page, kinds="LIST", key="a/3/"))
    assert names(shown) == [str(i) for i in range(10)]


@pytest.mark.parametrize("kind", ["repeated", "endless", "no token", "cut", "web page", "error", "foreign"])
def test_bad_listings_are_errors(shown, kind):
    count = iter(range(10**9))

    def page(request):
        if kind == "repeated":
            request.list(names=["a/3/1"], token="again")
        elif kind == "endless":
            request.list(names=[], token=f"t{next(count)}")
        elif kind == "no token":
            xml = b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"
            request.send(200, xml)
        elif kind == "cut":
            request.send(200, b"<ListBucketResult><Contents><Key>a/3/1</Key>")
        elif kind == "web page":
            request.send(200, b"<html><body>welcome</body></html>")
        elif kind == "error":
            request.send(200, b"<Error><Code>InternalError</Code></Error>")
        elif kind == "foreign":
            request.list(names=["elsewhere/x"])

    shown.faults.append(fault(page, kinds="LIST", key="a/3/"))
    with pytest.raises(OSError) as problem:
        names(shown)
    assert problem.value.errno == errno.EIO
    shown.faults.clear()
    assert names(shown) == [str(i) for i in range(10)]


def test_an_endpoint_that_is_not_there_is_named(room):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    for url in [f"http://127.0.0.1:{port}", "http://no-such-host.invalid", f"https://127.0.0.1:{port}"]:
        code, text = fails("s3://b/a", "--endpoint-url", url, "--no-sign-request", env=clean_env(), within=10)
        assert code == 7 and url in text, text


def test_a_web_page_for_tls_is_named(double):
    url = double.url.replace("http:", "https:")
    code, text = fails("s3://b/a", "--endpoint-url", url, "--no-sign-request", env=clean_env(), within=10)
    assert code == 7 and url in text, text


def test_an_object_replaced_between_two_reads_of_it(foreign):
    with open(foreign.view / "file", "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        assert os.pread(file.fileno(), 100, 0) == foreign.content[:100]
        foreign.objects["a/file"] = bytes(len(foreign.content))
        with pytest.raises(OSError) as problem:
            os.pread(file.fileno(), 100, 250_000)
        assert problem.value.errno == errno.ESTALE
        del foreign.objects["a/file"]
        with pytest.raises(OSError) as problem:
            os.pread(file.fileno(), 100, 200_000)
        assert problem.value.errno == errno.ESTALE
    assert (foreign.view / "other").read_bytes() == b"x"


def test_a_deleted_object_is_whole_if_it_is_open_and_else_said_to_be_absent(shown):
    with open(shown.view / "3/4", "rb") as file:
        del shown.objects["a/3/4"]
        # What was opened is whole.
        assert file.read() == shown.values[30:40, 40:50].tobytes()
    assert os.path.exists(shown.view / "3/6")
    del shown.objects["a/3/6"]
    shown.log.clear()
    # The kernel looks the name up once more when it is told that it is stale, and the server says that it is absent.
    assert chunk(shown, "3/6")[0] == errno.ENOENT
    asked = [kind for kind, key in shown.log if key == "a/3/6"]
    assert asked == ["GET", "HEAD"]
    assert not os.path.lexists(shown.view / "3/6")
    assert chunk(shown, "3/5")[0] == 0


def test_a_bucket_that_moves_is_no_absence(shown):
    away = lambda request: request.error(301, "PermanentRedirect", {"x-amz-bucket-region": "eu-north-1"})  # noqa: E731
    shown.faults.append(fault(away))
    assert chunk(shown, "3/4")[0] == errno.EIO
    with pytest.raises(OSError) as problem:
        os.listdir(shown.view / "4")
    assert problem.value.errno == errno.EIO
    shown.faults.clear()
    time.sleep(1.1)
    assert chunk(shown, "3/4")[0] == 0


def test_credentials_that_expire_are_asked_for_again(double, room, mount):
    values, files = small_array((100, 100), (10, 10), "/")
    put(double, "a", files)
    counter, script, config = room / "counter", room / "keys", room / "config"
    script.write_text(
        f"#!/bin/sh\necho x >> {counter}\nn=$(wc -l < {counter})\n"
        'echo "{\\"Version\\": 1, \\"AccessKeyId\\": \\"AKID$n\\", \\"SecretAccessKey\\": \\"hush-hush$n\\"}"\n'
    )
    script.chmod(0o755)
    config.write_text(f"[profile p]\ncredential_process = {script}\nregion = us-east-1\n")
    view = mount("s3://b/a", "--endpoint-url", double.url, "--profile", "p", env=clean_env(AWS_CONFIG_FILE=str(config)))
    double.view, double.values = view, values
    expired = [True]

    def judge(request):
        if expired[0] and "AKID1/" in request.handler.headers.get("Authorization", ""):
            request.error(400, "ExpiredToken")
            return True
        return False

    double.faults.append(judge)
    assert chunk(double, "3/4")[0] in (0, errno.EACCES)
    time.sleep(1.1)
    assert chunk(double, "3/4")[0] == 0 and chunk(double, "3/5")[0] == 0
    assert "hush" not in view.text()


@pytest.mark.parametrize("at", range(0, 400, 23))
def test_a_body_cut_anywhere_is_mended_or_an_error(shown, at):
    shown.faults.append(fault(cut(at), kinds="GET", key="a/3/4", times=1))
    assert chunk(shown, "3/4")[0] == 0
