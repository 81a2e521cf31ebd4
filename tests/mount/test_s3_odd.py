"""Servers of objects that keep to HTTP and do little of it, and those that say odd things: what other clients read is read."""

import contextlib
import errno
import gzip
import io
import json
import os
import struct
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import google_crc32c
import numpy as np
import pytest
import zarr

from support.mounting import wait_for
from support.reading import by_zarr
from support.s3 import clean_env, fault
from test_s3 import double, put, small_array  # noqa: F401


def with_headers(**changed):
    """Answers as they should be, with other headers: `_` is `-`, and None is no such header."""

    def act(request):
        known = request.headers_of

        def headers_of(content):
            headers = known(content) | {name.replace("_", "-"): value for name, value in changed.items()}
            return {name: value for name, value in headers.items() if value is not None}

        request.headers_of = headers_of
        request.object()

    return act


def without_head(status):
    return lambda request: request.send(status) if request.handler.command == "HEAD" else request.object()


def without_suffixes(status):
    """The last bytes cannot be asked for; with 200 all of the object comes instead."""

    def act(request):
        if not request.handler.headers.get("Range", "").startswith("bytes=-") or request.key not in request.double.objects:
            return request.object()
        content = request.double.objects[request.key]
        request.send(status, content if status == 200 else b"", request.headers_of(content) if status == 200 else {})

    return act


def without_lengths(request):
    """Bodies that say where they end, and not before; ranges are not known."""
    content = request.double.objects.get(request.key)
    if content is None:
        return request.error(404, "NoSuchKey")
    handler = request.handler
    handler.send_response(200)
    for name, value in (request.headers_of(content) | {"Transfer-Encoding": "chunked"}).items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        for piece in [content[i : i + 100] for i in range(0, len(content), 100)] + [b""]:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))


def in_coding(coding, body):
    """A body without a length, in a transfer coding; what is not in chunks ends with the connection."""

    def act(request):
        content, handler = request.double.objects[request.key], request.handler
        handler.send_response(200)
        for name, value in (request.headers_of(content) | {"Transfer-Encoding": coding, "Connection": "close"}).items():
            handler.send_header(name, value)
        handler.end_headers()
        sent = body(content)
        handler.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(sent), sent) if coding.endswith("chunked") else sent)
        handler.close_connection = True

    return act


def compressing(request):
    """What is not asked for as it is comes compressed: RFC 9110 has any coding be acceptable to those who say nothing."""
    content = request.double.objects.get(request.key)
    if content is None or request.handler.headers.get("Accept-Encoding") == "identity":
        return request.object()
    request.send(200, gzip.compress(content), request.headers_of(content) | {"Content-Encoding": "gzip"})


def last_place_of_all(request):
    """The place of the last byte is a number to which none can be added."""
    send = request.send

    def other(status, body=b"", headers=None, length=None):
        if status == 206:
            headers["Content-Range"] = headers["Content-Range"].replace("-", f"-{2**64 - 1}:").split(":")[0] + "/5"
        send(status, body, headers, length)

    request.send = other
    request.object()


SERVERS = {
    "HEAD 405": without_head(405),
    "HEAD 501": without_head(501),
    "suffix 200": without_suffixes(200),
    "suffix 400": without_suffixes(400),
    "suffix 416": without_suffixes(416),
    "suffix 500": without_suffixes(500),
    "suffix 501": without_suffixes(501),
    "no lengths": without_lengths,
    "compressing": compressing,
    "huge place": last_place_of_all,
    # RFC 9110 has recipients take all three forms of a time, and overlook what is none.
    "time of RFC 850": with_headers(Last_Modified="Monday, 02-Nov-26 10:00:00 GMT", ETag=None),
    "time of asctime": with_headers(Last_Modified="Mon Nov  2 10:00:00 2026", ETag=None),
    "another day of the week": with_headers(Last_Modified="Tue, 02 Nov 2026 10:00:00 GMT"),
    "no time": with_headers(Last_Modified="yesterday"),
    "name not in ASCII": with_headers(Content_Disposition='attachment; filename="\xe9"', x_amz_meta_a="\xe9"),
}


@pytest.fixture(params=["bucket", "web"])
def mounted(request, mount, double):
    """Mounts what has a key in the bucket, by S3 or as a web server's."""

    def make(key, *options):
        if request.param == "bucket":
            return double.mount(f"s3://b/{key}", *options)
        return mount(f"{double.url}/b/{key}", *options, env=clean_env())

    return make


def archive(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        for name, content in files.items():
            zipped.writestr(name, content)
    return packed.getvalue()


@pytest.mark.parametrize("server", SERVERS)
def test_what_servers_need_not_do(server, mounted, double, room):
    values, files = small_array()
    del files["1.1"]
    values[10:20, 10:20] = 0
    put(double, "a", files)
    double.put("z.zip", archive(files))
    shards = zarr.create_array(room / "s", shape=(40, 40), shards=(20, 20), chunks=(10, 10), dtype="<i4", compressors=None)
    shards[...] = values
    double.upload("s", room / "s")
    double.faults.append(fault(SERVERS[server], kinds="GET HEAD"))
    for key, absent in [("a", "1.1"), ("z.zip", "1.1"), ("s", "c/1/1")]:
        view = mounted(key)
        assert (by_zarr(view / "") == values).all(), key
        assert not os.path.exists(view / absent), key


def test_a_body_without_a_length_that_breaks_off(mounted, double):
    values, files = small_array()
    put(double, "a", files)
    view = mounted("a")

    def half(request):
        handler = request.handler
        handler.send_response(200)
        for name, value in (request.headers_of(files["0.0"]) | {"Transfer-Encoding": "chunked"}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(b"c8\r\n" + files["0.0"][:200] + b"\r\n")
        handler.close_connection = True

    double.faults.append(fault(half, kinds="GET", key="a/0.0"))
    with pytest.raises(OSError) as problem:
        (view / "0.0").read_bytes()
    assert problem.value.errno == errno.EIO


@pytest.mark.parametrize("coding, body", [
    ("identity", lambda content: content[:300]), ("gzip, chunked", gzip.compress), ("gzip", gzip.compress),
    ("chunked", lambda content: content[:300]), ("chunked", lambda content: content * 2),
], ids=["identity", "gzip in chunks", "gzip", "shorter", "longer"])  # fmt: skip
def test_a_body_that_is_another_than_the_object(coding, body, mounted, double, room):
    """It ends with the connection, or is coded, or is not what the object's length says."""
    files = small_array()[1]
    put(double, "a", files)
    double.put("a/notes.txt", b"0123456789" * 1000)
    view = mounted("a", "--disk-cache", room / "kept")
    assert (view / "notes.txt").stat().st_size == 10_000
    double.faults.append(fault(in_coding(coding, body), kinds="GET", key="a/notes.txt"))
    with pytest.raises(OSError) as problem:
        (view / "notes.txt").read_bytes()
    assert problem.value.errno == errno.EIO
    double.faults.clear()
    assert (view / "notes.txt").read_bytes() == (mounted("a", "--disk-cache", room / "kept") / "notes.txt").read_bytes()


def test_google_gives_what_is_stored(mount, double):
    """It undoes a stored coding for who does not ask for it, says nothing of that, and tells the same tag."""
    plain = b"".join(b"line %05d\n" % i for i in range(2000))
    stored = gzip.compress(plain)
    put(double, "a", small_array()[1])
    double.put("a/notes.txt", stored)

    def act(request):
        told = {"x-goog-stored-content-encoding": "gzip", "x-goog-stored-content-length": str(len(stored))}
        if request.handler.headers.get("Accept-Encoding") == "gzip":
            with_headers(**{name.replace("-", "_"): value for name, value in told.items()}, Content_Encoding="gzip")(request)
        else:
            in_coding("chunked", lambda _: plain)(request)

    double.faults.append(fault(act, kinds="GET", key="a/notes.txt"))
    view = mount("gs://b/a", "--endpoint-url", double.url, "--no-sign-request", env=clean_env())
    assert (view / "notes.txt").read_bytes() == stored


def test_a_server_that_fails_once_is_asked_as_before(double, room):
    """That the last bytes could not be asked for once does not make each shard cost a request more."""
    shards = zarr.create_array(room / "s", shape=(100, 20), shards=(20, 20), chunks=(10, 10), dtype="<i4", compressors=None)
    shards[...] = np.arange(2000).reshape(100, 20)
    double.upload("s", room / "s")
    view = double.mount("s3://b/s")

    def asked(name):
        double.log.clear()
        (view / name).read_bytes()
        return double.count()

    before = asked("c/0/0")
    for answer in (lambda request: request.send(500), lambda request: request.send(200, b"<html>")):
        double.faults.append(fault(answer, kinds="GET", key="s/c/1", times=7))
        try:
            asked("c/2/0")
        except OSError as problem:
            assert problem.errno == errno.EIO
        double.faults.clear()
    assert asked("c/8/0") == before, double.log


def test_a_server_that_gives_all_of_some_objects(double, room):
    """A cache on the way may have one in parts, and ask for the whole of another."""
    shards = zarr.create_array(room / "s", shape=(100, 20), shards=(20, 20), chunks=(10, 10), dtype="<i4", compressors=None)
    shards[...] = np.arange(2000).reshape(100, 20)
    double.upload("s", room / "s")
    view = double.mount("s3://b/s")
    for shard in range(5):
        if shard % 2:
            double.faults.append(fault(lambda request: request.send(200, request.double.objects[request.key],
                                                                    request.headers_of(request.double.objects[request.key])),
                                       kinds="GET", key=f"s/c/{shard}"))
        got = np.fromfile(view / f"c/{2 * shard}/0", "<i4")
        assert (got == shards[20 * shard : 20 * shard + 10, :10].ravel()).all()


@pytest.mark.parametrize("times", [1, 10**9])
def test_a_head_that_tells_another_length(times, mount, double):
    """Once, or always: what GET gives is the object."""
    values, files = small_array()
    put(double, "a", files)
    double.faults.append(fault(with_headers(Content_Length="0"), kinds="HEAD", key="a/1.0", times=times))
    view = mount(f"{double.url}/b/a", env=clean_env())

    def read():
        try:
            return (view / "1.0").read_bytes() == files["1.0"]
        except OSError as problem:
            assert problem.errno == errno.EIO

    wait_for(read, 20, "asked again it tells the other length")


def test_many_ask_at_once_where_the_last_bytes_cannot_be_asked_for(mounted, double, room):
    shards = zarr.create_array(room / "s", shape=(160, 20), shards=(20, 20), chunks=(10, 10), dtype="<i4", compressors=None)
    shards[...] = np.arange(3200).reshape(160, 20)
    double.upload("s", room / "s")
    together = threading.Barrier(8, timeout=2)

    def act(request):
        if not request.handler.headers.get("Range", "").startswith("bytes=-"):
            return request.object()
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait()
        request.send(416)

    double.faults.append(fault(act, kinds="GET"))
    view = mounted("s")
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda i: np.fromfile(view / f"c/{2 * i}/0", "<i4"), range(8)))
    assert all((part == shards[20 * i : 20 * i + 10, :10].ravel()).all() for i, part in enumerate(got))
    assert "another version" not in view.text()


@pytest.mark.parametrize("tag", ["", '""', 'W/""'])
def test_an_entity_tag_without_a_text_is_none(tag, mounted, double, room):
    """What is replaced is told by its time, in the parts of one object and in the folder of what was read."""
    times = {}

    def answer(request):
        time = times.get(request.key, "Mon, 02 Nov 2026 10:00:00 GMT")
        with_headers(ETag=tag, Last_Modified=time)(request)

    def replace(key, content):
        double.put(key, content)
        times[key] = "Mon, 02 Nov 2026 11:00:00 GMT"

    double.faults.append(fault(answer, kinds="GET HEAD"))
    shard = zarr.create_array(room / "s", shape=(40,), shards=(40,), chunks=(10,), dtype="<i4", compressors=None)
    shard[...] = np.arange(40)
    double.upload("s", room / "s")
    view = mounted("s")
    assert (np.fromfile(view / "c/0", "<i4") == range(10)).all()
    # Other values at other places, and just as long.
    index = b"".join(struct.pack("<QQ", place * 40, 40) for place in (3, 2, 1, 0))
    index += struct.pack("<I", google_crc32c.value(index))
    parts = [np.arange(100 + start, 110 + start, dtype="<i4").tobytes() for start in (30, 20, 10, 0)]
    assert len(index) + 160 == len(double.objects["s/c/0"])
    replace("s/c/0", b"".join(parts) + index)
    try:
        got = np.fromfile(view / "c/1", "<i4").tolist()
    except OSError as problem:
        assert problem.errno in (errno.EIO, errno.ESTALE)
    else:
        assert got in (list(range(10, 20)), list(range(110, 120)))

    values, files = small_array()
    put(double, "a", files)
    for _ in range(2):
        view = mounted("a", "--disk-cache", room / "kept")
        assert (by_zarr(view / "") == values).all()
        for name in files.keys() - {".zarray", ".zattrs"}:
            replace(f"a/{name}", bytes(byte ^ 1 for byte in double.objects[f"a/{name}"]))
        values = values ^ 0x01010101


@pytest.mark.parametrize("lengths", [True, False])
def test_the_rest_of_an_object_is_not_held(lengths, mount, double):
    """Ranges are answered with all of the object, to many readers at a time."""
    size, count = 1 << 20, 40
    document = {
        "zarr_format": 2, "shape": [size * count], "chunks": [size], "dtype": "|u1", "compressor": None, "filters": None,
        "fill_value": 0, "order": "C",
    }
    files = {".zarray": json.dumps(document)} | {str(i): bytes([i]) * size for i in range(count)}
    double.put("x.zip", archive(files))

    def whole(request):
        content = double.objects[request.key]
        request.send(200, content, request.headers_of(content))

    double.faults.append(fault(whole if lengths else in_coding("chunked", bytes), kinds="GET", key="x.zip"))
    view = mount(f"{double.url}/b/x.zip", "--cache-size", "64M", env=clean_env())
    with ThreadPoolExecutor(count) as pool:
        assert all(pool.map(lambda i: (view / str(i)).read_bytes() == files[str(i)], range(count)))
    assert view.status("VmHWM") < 512 << 10, "some hundred MiB, and not 40 MiB for each reader"


@pytest.mark.parametrize("odd", ["/x", "./x", "../x", ".", "..", "a\x01b", "a\tb", "a\nb/c", "\x7f"])
def test_names_that_cannot_be_asked_for_are_left_out(odd, double):
    values, files = small_array()
    put(double, "set/a", files)
    double.put("set/.zgroup", b'{"zarr_format": 2}')
    double.put(f"set/{odd}", b"1")
    double.put(f"set/a/{odd}", b"2")
    double.put(f"set/alone/{odd}", b"3")
    view = double.mount("s3://b/set")
    assert set(os.listdir(view / "")) - {".zattrs"} == {".zgroup", "a", "alone"}
    assert set(os.listdir(view / "a")) - {".zattrs"} == set(files) - {".zattrs"}
    assert (by_zarr(view / "a") == values).all() and os.listdir(view / "alone") == []
    name = odd.split("/")[0]
    if name.strip("."):
        with pytest.raises(OSError) as problem:
            os.stat(view / "a" / name)
        assert problem.value.errno == errno.EOPNOTSUPP, "it is there"
    assert "left out" in view.text()


@pytest.mark.parametrize("body", [b"<html><body>Who are you?</body></html>", b'{"zarr_format": 2, "who": "are you?"}'])
def test_what_something_on_the_way_says_is_not_what_the_object_holds(body, double):
    """A page in the place of a document, without the entity tag that the listing told."""
    values, files = small_array()
    put(double, "set/a", {**files, ".zattrs": b'{"b": 1}'})
    double.put("set/.zgroup", b'{"zarr_format": 2}')
    view = double.mount("s3://b/set")
    pages = [fault(lambda request: request.send(200, body), kinds="GET", key=f"set/a/{name}") for name in (".zarray", ".zattrs")]
    double.faults[:] = pages
    for name in (".zarray", ".zattrs", "0.0"):
        with pytest.raises(OSError) as problem:
            (view / "a" / name).read_bytes()
        assert problem.value.errno == errno.EIO
    double.faults.clear()
    time.sleep(1.1)
    assert (by_zarr(view / "a") == values).all()
    assert json.loads((view / "a/.zattrs").read_bytes())["b"] == 1
