"""Stores in buckets: the same values as on disk, with few requests, from a real server that checks signatures."""

import errno
import json
import os
import subprocess
import time
import urllib.parse
import zipfile

import numpy as np
import pytest
import zarr

from support import data
from support.checks import check_groups, check_store
from support.mounting import binary
from support.reading import by_zarr
from support.s3 import EVERYTHING, SERVER, Double, Real, clean_env

CORPUS = data.stores()
# Each dialect and a few kinds of archive: what differs between the others is not where their bytes come from.
STORES = [
    "n5/java.n5", "n5/tensorstore_rootds.n5", "nczarr/v480_lemon.zarr", "nczarr/v492_lemon.zarr", "zarr2/rootarray.zarr",
    "zarr2/tree.zarr", "zarr2/xarray.zarr", "zip/nczarr_v492.zip", "zip/zarr2__gdal_float64_lz4__py_zip64.zip",
    "zip/zarr2__tree__bsdtar.zip",
]


@pytest.fixture(scope="module")
def real():
    server = Real()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def bucket(real):
    """Uploads a store once, and says where it is."""
    done = set()

    def upload(store):
        if SERVER == "s3s" and store.startswith("zip/") and CORPUS.path(store).stat().st_size < 1 << 20:
            pytest.skip("asked for the last 64 KiB of a shorter object, it fails with 500")
        if store not in done:
            real.tell("upload", "bucket", f"stores/{store}", CORPUS.path(store))
            done.add(store)
        return f"s3://bucket/stores/{store}"

    return upload


@pytest.fixture
def s3(mount, real):
    """Mounts an address of the real server as a user who may do everything there."""

    def make(source, *options, user="all", **more):
        return mount(source, "--endpoint-url", real.url, *options, env=real.env(user, **more))

    return make


def fails(source, *options, env, within=30):
    """The exit status and the text of a mount that must fail."""
    start = time.monotonic()
    done = subprocess.run([binary(), source, "/nowhere", "-f", *options], env=env, capture_output=True, text=True, timeout=100)
    assert time.monotonic() - start < within
    assert done.stderr.count("\n") == 1, done.stderr
    return done.returncode, done.stderr


@pytest.mark.parametrize("store", STORES)
def test_values(store, bucket, s3):
    view = s3(bucket(store))
    check_store(CORPUS, store, view)
    check_groups(CORPUS, store, view)


def small_array(shape=(40, 40), chunks=(10, 10), separator="."):
    """The files of a small array: its values, and bytes by name."""
    values = np.arange(1, np.prod(shape) + 1, dtype="<i4").reshape(shape)
    document = {
        "zarr_format": 2, "shape": shape, "chunks": chunks, "dtype": "<i4", "compressor": None, "filters": None,
        "fill_value": 0, "order": "C", "dimension_separator": separator,
    }
    files = {".zarray": json.dumps(document).encode(), ".zattrs": b"{}"}
    grid = [n // c for n, c in zip(shape, chunks)]
    for index in np.ndindex(*grid):
        part = values[tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, chunks))]
        files[separator.join(map(str, index))] = part.tobytes()
    return values, files


@pytest.fixture
def double(mount):
    """A bucket of a server in this process, and mounts of it without credentials."""
    server = Double()
    server.mount = lambda source, *options, **more: mount(
        source, "--endpoint-url", server.url, "--no-sign-request", *options, env=clean_env(), **more
    )
    keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "any"}
    server.signed = lambda source, *options: mount(source, "--endpoint-url", server.url, *options, env=clean_env(**keys))
    yield server
    server.stop()


def put(double, prefix, files):
    for name, content in files.items():
        double.put(f"{prefix}/{name}", content)


def test_urls_and_credentials(bucket, s3, real, room, mount):
    all_of_it = ("--log-level", EVERYTHING)
    address = bucket("zarr2/rootarray.zarr").removeprefix("s3://")
    config, secrets = room / "config", room / "credentials"
    user = real.users["all"]
    config.write_text("[profile mine]\nregion = us-east-1\n")
    secrets.write_text(
        f"[mine]\naws_access_key_id = {user['AWS_ACCESS_KEY_ID']}\naws_secret_access_key = {user['AWS_SECRET_ACCESS_KEY']}\n"
    )
    files = {"AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": str(secrets)}
    # By a profile: named by option, in the URL, or in the environment, which names the endpoint as well.
    views = [
        s3(f"s3://{address}", "--profile", "mine", *all_of_it, user=None, **files),
        mount(f"{real.url}/{address}#mode=nczarr,s3&aws.profile=mine", *all_of_it, env=real.env(None, **files)),
        mount(f"s3://{address}", *all_of_it, env=real.env(None, AWS_PROFILE="mine", AWS_ENDPOINT_URL=real.url, **files)),
    ]
    truth = by_zarr(CORPUS.path("zarr2/rootarray.zarr"))
    for view in views:
        assert (by_zarr(view / "") == truth).all()
        said = view.text() + open(f"/proc/{view.process.pid}/cmdline").read() + json.dumps(view.stats())
        assert " debug " in said and user["AWS_SECRET_ACCESS_KEY"] not in said
    code, text = fails(f"s3://{address}", "--endpoint-url", real.url, env=real.env())
    assert code == 4 and "credentials" in text
    wrong = dict(user, AWS_SECRET_ACCESS_KEY="not the right secret")
    code, text = fails(f"s3://{address}", "--endpoint-url", real.url, env=clean_env(**wrong))
    # Garage has one word for all that it refuses.
    refusal = "AccessDenied" if os.environ.get("CHUNKMOUNT_S3_SERVER") == "garage" else "SignatureDoesNotMatch"
    assert code == 4 and refusal in text and "not the right secret" not in text
    code, text = fails("s3://bucket/nothing/here", "--endpoint-url", real.url, env=real.env("all"))
    assert code == 3 and "s3://bucket/nothing/here" in text


@pytest.mark.skipif(SERVER != "moto", reason="who may read may list there")
def test_without_list_permission_nothing_is_absent(bucket, s3, real):
    code, text = fails(bucket("zarr2/tree.zarr") + "/no", "--endpoint-url", real.url, env=real.env("reader"))
    assert code == 4, text
    # Single objects can be read all the same: the array that has a .zarray, and its chunks.
    address = bucket("zarr2/rootarray.zarr")
    view = s3(address, user="reader")
    assert (by_zarr(view / "") == by_zarr(CORPUS.path("zarr2/rootarray.zarr"))).all()
    with pytest.raises(PermissionError):
        os.listdir(view / "")


def test_requests_for_an_array(double):
    values, files = small_array()
    put(double, "a.zarr", files)
    view = double.mount("s3://b/a.zarr")
    # One listing, and the documents that it has.
    assert double.count() == {"LIST": 1, "GET": 2}
    assert (by_zarr(view / "") == values).all()
    # The listing has told of the chunks: each costs the one read.
    assert double.count() == {"LIST": 1, "GET": 2 + 16}
    store = view.stats()["store"]
    assert (store["list"], store["head"], store["get"]) == (1, 0, 18)


def test_a_chunk_of_a_long_listing_costs_two_requests_and_no_listing(double):
    values, files = small_array((400, 400), (10, 10), "/")
    put(double, "a.zarr", {**files, "3/7": b""})
    view = double.mount("s3://b/a.zarr")
    before = double.count()
    chunk = np.fromfile(view / "5/6", "<i4").reshape(10, 10)
    assert (chunk == values[50:60, 60:70]).all()
    assert double.count() - before == {"HEAD": 1, "GET": 1}
    before = double.count()
    assert not os.path.exists(view / "39/40") and double.count() == before, "outside of the grid"
    del double.objects["a.zarr/9/9"]
    assert not os.path.exists(view / "9/9")
    assert double.count() - before == {"HEAD": 1}


def test_consolidated_metadata_opens_a_thousand_arrays(double):
    values, files = small_array((10,), (10,))
    double.put_group("set", 1000, files)
    view = double.mount("s3://b/set")
    group = zarr.open_group(view / "", mode="r", use_consolidated=True)
    assert len(list(group.array_keys())) == 1000
    assert (group["v17"][:] == values).all() and (group["v999"][:] == values).all()
    count = double.count()
    assert sum(count.values()) <= 12, count


def test_an_archive_is_read_by_ranges(double):
    double.put("x.zip", CORPUS.path("zip/many_entries.zip").read_bytes())
    size = len(double.objects["x.zip"])
    view = double.mount("s3://b/x.zip")
    names = data.entries(view)
    open(view / names[-1], "rb").read()
    assert view.stats()["store"]["bytes"] < max(size / 2, 2 << 20)
    assert double.count()["LIST"] == 0 and double.count()["GET"] < 20


def test_markers_of_directories_are_directories(double):
    values, files = small_array()
    put(double, "set/a", files)
    double.put("set/", b"")
    double.put("set/a/", b"")
    double.put("set/empty/", b"")
    double.put("set/.zgroup", b'{"zarr_format": 2}')
    view = double.mount("s3://b/set/")
    assert set(os.listdir(view / "")) - {".zattrs"} == {".zgroup", "a", "empty"}
    assert os.listdir(view / "empty") == [] and (by_zarr(view / "a") == values).all()


def test_a_web_server_opens_by_name(mount, double):
    values, files = small_array()
    put(double, "b/a", files)
    view = mount(f"{double.url}/b/b/a", env=clean_env())
    assert (by_zarr(view / "") == values).all()
    with pytest.raises(OSError) as problem:
        os.listdir(view / "")
    assert problem.value.errno == errno.EOPNOTSUPP


def test_the_region_is_found(double):
    values, files = small_array()
    put(double, "a", files)

    def elsewhere(request):
        request.error(301, "PermanentRedirect", {"x-amz-bucket-region": "eu-north-1"})

    asked = []

    def away(request):
        asked.append(request.handler.headers.get("Authorization", ""))
        if "/eu-north-1/s3/" in asked[-1]:
            return False
        elsewhere(request)
        return True

    double.faults.append(away)
    view = double.signed("s3://b/a")
    assert (by_zarr(view / "") == values).all()
    assert sum("/us-east-1/" in text for text in asked) == 1


@pytest.mark.parametrize("what", ["directory", "archive"])
def test_the_region_is_found_in_the_text_of_an_error(what, double, room):
    """Garage says it only there, and Amazon there as well. Of an archive it is asked by HEAD first, whose answer has no text."""
    values, files = small_array()
    put(double, "a", files)
    with zipfile.ZipFile(room / "a.zip", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    double.put("a.zip", (room / "a.zip").read_bytes())
    text = (
        b"<?xml version='1.0'?><Error><Code>AuthorizationHeaderMalformed</Code><Message>unexpected scope</Message>"
        b"<Resource>/b/</Resource><Region>garage</Region></Error>"
    )

    def away(request):
        elsewhere = "/garage/s3/" not in request.handler.headers.get("Authorization", "")
        if elsewhere:
            request.send(400, text)
        return elsewhere

    double.faults.append(away)
    view = double.signed("s3://b/a.zip" if what == "archive" else "s3://b/a")
    assert (by_zarr(view / "") == values).all()


def test_readers_pay_if_they_say_so(double):
    values, files = small_array()
    put(double, "a", files)
    said = []

    def listen(request):
        said.append(request.handler.headers.get("x-amz-request-payer"))
        return False

    double.faults.append(listen)
    view = double.signed("s3://b/a", "--request-payer")
    assert (by_zarr(view / "") == values).all() and set(said) == {"requester"}


def test_the_bucket_as_a_part_of_the_host(mount, double):
    values, files = small_array()
    put(double, "a", files)
    hosts = set()

    def listen(request):
        # A proxy is told the whole URL, so that no name server need know the host.
        url = urllib.parse.urlsplit(request.handler.path)
        hosts.add(url.netloc)
        if request.kind != "LIST":
            request.key = urllib.parse.unquote(url.path.lstrip("/"))
        return False

    double.faults.append(listen)
    env = clean_env(http_proxy=double.url)
    for endpoint, bucket in [("http://{bucket}.s3.example:81", ""), ("http://s3.example:81", "b/")]:
        if bucket:
            for name, content in files.items():
                double.put(f"b/a/{name}", content)
        hosts.clear()
        with mount("s3://b/a", "--endpoint-url", endpoint, "--no-sign-request", env=env) as view:
            assert (by_zarr(view / "") == values).all()
            assert hosts == {"s3.example:81" if bucket else "b.s3.example:81"}


def test_google(mount, double):
    values, files = small_array()
    put(double, "a", files)
    view = mount("gs://b/a", "--endpoint-url", double.url, "--no-sign-request", env=clean_env())
    assert (by_zarr(view / "") == values).all()
    assert set(os.listdir(view / "")) == set(files) - {".zattrs"} - {".zattrs"}
    assert double.count() == {"LIST": 1, "GET": 2 + 16}


def test_azure(mount, double):
    values, files = small_array()
    put(double, "a", files)

    def listing(request):
        if request.query.get("comp") != "list":
            return False
        prefix = request.query.get("prefix", "")
        blobs = "".join(
            f"<Blob><Name>{name}</Name><Properties><Last-Modified>Mon, 02 Nov 2026 10:00:00 GMT</Last-Modified>"
            f"<Content-Length>{len(content)}</Content-Length><Etag>{request.headers_of(content)['ETag']}</Etag>"
            f"<Content-Type>x</Content-Type></Properties></Blob>"
            for name, content in sorted(double.objects.items())
            if name.startswith(prefix)
        )
        xml = f"<?xml version='1.0'?><EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>"
        request.send(200, xml.encode(), {"Content-Type": "application/xml"})
        return True

    double.faults.append(listing)
    env = clean_env(AZURE_STORAGE_ACCOUNT_NAME="account")
    view = mount("az://b/a", "--endpoint-url", double.url, "--no-sign-request", env=env)
    assert (by_zarr(view / "") == values).all()
    assert set(os.listdir(view / "")) == set(files) - {".zattrs"}


def test_an_archive_on_a_web_server_is_read_by_ranges(mount, double):
    double.put("x.zip", CORPUS.path("zip/many_entries.zip").read_bytes())
    size = len(double.objects["x.zip"])
    for source in [f"{double.url}/b/x.zip", f"{double.url}/b/x.zip#mode=zip"]:
        double.log.clear()
        with mount(source, env=clean_env()) as view:
            names = data.entries(view)
            # Its size, its last bytes, and the directory.
            assert double.count() == {"HEAD": 1, "GET": 4}
            for name in names[-3:]:
                (view / name).read_bytes()
            # What is read ahead is counted too, and may be on its way.
            for _ in range(50):
                stats, count = view.stats(), double.count()
                store, misses, ahead = stats["store"], stats["cache"]["misses"], stats["read_ahead"]["chunks"]
                told = (store["get"], store["head"], store["list"])
                # Those that were read, and those after them: each by a request, or together with its neighbours.
                same = told == tuple(count[kind] for kind in ("GET", "HEAD", "LIST"))
                if same and 4 < told[0] <= 4 + misses and told[1:] == (1, 0) and misses <= 3 + ahead:
                    break
                time.sleep(0.1)
            else:
                raise AssertionError(f"told {told}, {misses} misses, {ahead} read ahead; the server counted {count}")
            assert ahead <= 64
            assert store["bytes"] < max(size / 2, 2 << 20)


def test_what_is_absent_is_asked_for_once(double):
    values, files = small_array((400, 400), (10, 10), "/")
    put(double, "a", {**files, "3/7": b""})
    for name in ("a/9/9", "a/20/4"):
        del double.objects[name]
    view = double.mount("s3://b/a")
    before = double.count()
    for _ in range(3):
        for name in ("9/9", "20/4"):
            assert not os.path.exists(view / name)
            with pytest.raises(FileNotFoundError):
                open(view / name, "rb")
    assert double.count() - before == {"HEAD": 2}


def test_a_listing_of_many_pages_is_asked_for_once(double):
    values, files = small_array((600, 600), (10, 10))
    put(double, "a", files)
    view = double.mount("s3://b/a")
    for _ in range(3):
        assert set(os.listdir(view / "")) == set(files) - {".zattrs"}
    # 3,602 names; a document that comes after those of the first page is asked for by its name: there are four such.
    assert double.count() == {"LIST": 4, "GET": 6}, double.log
    assert (np.fromfile(view / "59.59", "<i4").reshape(10, 10) == values[590:, 590:]).all()
    assert double.count() == {"LIST": 4, "GET": 7}
