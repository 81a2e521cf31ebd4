"""Servers of objects for the tests: a real one, and one that misbehaves as it is told."""

import functools
import hashlib
import json
import os
import subprocess
import threading
import time
import urllib.parse
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

from .data import ROOT


# Which real server: moto, or one that is more faithful and takes longer to install.
SERVER = os.environ.get("CHUNKMOUNT_S3_SERVER", "moto")

# Levels of the log at which the program and all libraries that know secrets say whatever they can.
EVERYTHING = "trace,object_store=trace,reqwest=trace,hyper=trace,rustls=trace,aws_=trace,tracing=trace"


class Real:
    """A real server in a process of its own, which checks signatures; see `moto_server.py` and `garage_server.py`."""

    def __init__(self):
        python = os.environ.get("CHUNKMOUNT_S3_PYTHON", ROOT / ".venv-s3" / "bin" / "python")
        script = ROOT / "tests" / "mount" / "support" / f"{SERVER}_server.py"
        self.process = subprocess.Popen(
            [python, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        told = json.loads(self.process.stdout.readline())
        self.url, self.users, self.role = told["url"], told["users"], told.get("role")
        self.region = told.get("region", "us-east-1")
        self.one_at_a_time = threading.Lock()

    def tell(self, *command):
        with self.one_at_a_time:
            self.process.stdin.write(json.dumps([str(part) for part in command]) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

    def env(self, user=None, **more):
        """An environment without any credentials but those of `user`."""
        region = {} if self.region == "us-east-1" else {"AWS_REGION": self.region}
        return clean_env(**region, **(self.users[user] if user else {}), **more)

    def stop(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)


def clean_env(**more):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
    nowhere = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true"}
    return {**kept, **nowhere, **more}


class Loopback:
    """A server on the loopback, in threads of its own."""

    def __init__(self, handler):
        class Server(ThreadingHTTPServer):
            daemon_threads = True
            # Whoever finds no room there tries again after a second, and then after ever more.
            request_queue_size = 1024

            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


class Double(Loopback):
    """A bucket on a server that misbehaves: `faults` are asked in turn whether they answer a request instead of it.

    A fault is called with the request and returns whether it has answered. `log` has every request as (kind, key); kinds are
    GET, HEAD and LIST. Everybody may read.
    """

    def __init__(self, page=1000):
        self.objects, self.faults, self.log, self.page = {}, [], [], page
        self.released = threading.Event()
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                Request(self, double).answer()

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        super().__init__(Handler)

    def stop(self):
        self.released.set()
        super().stop()

    def put(self, key, content):
        self.objects[key] = bytes(content)

    def upload(self, prefix, path):
        for here, _, files in os.walk(path):
            for name in files:
                file = os.path.join(here, name)
                with open(file, "rb") as content:
                    self.put(f"{prefix}/{os.path.relpath(file, path)}", content.read())

    def put_group(self, name, count, files):
        """A group of `count` arrays of Zarr v2 (`v0`, `v1` ...), each of these files, with consolidated metadata."""
        metadata = {".zgroup": {"zarr_format": 2}, ".zattrs": {}}
        self.put(f"{name}/.zgroup", b'{"zarr_format": 2}')
        for i in range(count):
            for file, content in files.items():
                self.put(f"{name}/v{i}/{file}", content)
            metadata |= {f"v{i}/.zarray": json.loads(files[".zarray"]), f"v{i}/.zattrs": {}}
        self.put(f"{name}/.zmetadata", json.dumps({"zarr_consolidated_format": 1, "metadata": metadata}).encode())

    def count(self):
        return Counter(kind for kind, _ in self.log)


@functools.lru_cache(maxsize=10_000)
def tag(content):
    """The entity tag; made once for each content, since a part of a large one must not cost all of it."""
    return '"' + hashlib.md5(content).hexdigest() + '"'


class Request:
    """One request: what is asked, and ways to answer it well or badly."""

    def __init__(self, handler, double):
        self.handler, self.double = handler, double
        url = urllib.parse.urlsplit(handler.path)
        self.query = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
        _, _, self.key = urllib.parse.unquote(url.path).lstrip("/").partition("/")
        self.kind = "LIST" if "list-type" in self.query else handler.command
        if self.kind == "LIST":
            self.key = self.query.get("prefix", "")
        double.log.append((self.kind, self.key))

    def answer(self):
        if not any(fault(self) for fault in list(self.double.faults)):
            self.list() if self.kind == "LIST" else self.object()

    def send(self, status, body=b"", headers=None, length=None):
        """An answer; `length` is what Content-Length says, False for none."""
        handler = self.handler
        handler.send_response(status)
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        if length is not False:
            handler.send_header("Content-Length", str(len(body) if length is None else length))
        else:
            handler.send_header("Connection", "close")
            handler.close_connection = True
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)
        if length is not None and length is not False and length != len(body):
            handler.close_connection = True

    def error(self, status, code, headers=None):
        self.send(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>so it is</Message></Error>".encode(), headers)

    def headers_of(self, content):
        return {
            "ETag": tag(content),
            "Last-Modified": "Mon, 02 Nov 2026 10:00:00 GMT",
            "Accept-Ranges": "bytes",
        }

    def slice(self, content):
        """The half-open range asked for; None for all."""
        text = self.handler.headers.get("Range")
        if not text:
            return None
        first, _, last = text.removeprefix("bytes=").partition("-")
        if not first:
            return max(0, len(content) - int(last)), len(content)
        return int(first), min(len(content), int(last) + 1 if last else len(content))

    def object(self):
        content = self.double.objects.get(self.key)
        if content is None:
            return self.error(404, "NoSuchKey")
        headers = self.headers_of(content)
        if self.handler.headers.get("If-Match", headers.get("ETag")) != headers.get("ETag"):
            return self.error(412, "PreconditionFailed")
        part = self.slice(content)
        if part is None:
            return self.send(200, content, headers, length=len(content))
        if part[0] >= part[1]:
            return self.error(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {part[0]}-{part[1] - 1}/{len(content)}"
        return self.send(206, content[part[0] : part[1]], headers)

    def names(self):
        """What a listing holds: keys, and prefixes that end in a slash, in order."""
        prefix = self.query.get("prefix", "")
        found = set()
        for key in self.double.objects:
            if key.startswith(prefix):
                below, slash, _ = key[len(prefix) :].partition("/")
                found.add(prefix + below + slash if slash else key)
        return sorted(found)

    def list(self, names=None, after=None, token=None):
        """A page of a listing. `names` instead of those that are there; `token` says that more follow."""
        if names is None:
            after = after if after is not None else self.query.get("continuation-token", "")
            rest = [name for name in self.names() if name > after]
            names = rest[: self.double.page]
            token = names[-1] if len(rest) > len(names) else None
        parts = []
        for name in names:
            if name.endswith("/") and name not in self.double.objects or name.count("/", len(self.query.get("prefix", ""))):
                parts.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
            else:
                content = self.double.objects.get(name, b"")
                tag = escape(self.headers_of(content)["ETag"])
                parts.append(
                    f"<Contents><Key>{escape(name)}</Key><LastModified>2026-11-02T10:00:00.000Z</LastModified>"
                    f"<ETag>{tag}</ETag><Size>{len(content)}</Size></Contents>"
                )
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        xml = f"<?xml version='1.0' encoding='UTF-8'?><ListBucketResult><Name>b</Name>{''.join(parts)}{more}</ListBucketResult>"
        self.send(200, xml.encode(), {"Content-Type": "application/xml"})


def fault(act, kinds="GET HEAD LIST", key=None, times=10**9, after=0):
    """A fault that lets `after` matching requests through and then disturbs `times` of them by `act(request)`."""
    left = [after, times]
    lock = threading.Lock()

    def answer(request):
        if request.kind not in kinds.split() or (key is not None and request.key != key):
            return False
        with lock:
            if left[0] > 0:
                left[0] -= 1
                return False
            if left[1] <= 0:
                return False
            left[1] -= 1
        act(request)
        return True

    return answer


def status(code, name="InternalError"):
    return lambda request: request.error(code, name)


def silent(request):
    """Accepted, and nothing ever said."""
    request.double.released.wait(60)
    request.handler.close_connection = True


def drip(request):
    """A byte each second."""
    content = request.double.objects[request.key]
    start, end = request.slice(content) or (0, len(content))
    headers = request.headers_of(content)
    if request.slice(content):
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
    request.send(206 if request.slice(content) else 200, b"", headers, length=end - start)
    for byte in content[start:end]:
        if request.double.released.wait(1):
            return
        try:
            request.handler.wfile.write(bytes([byte]))
            request.handler.wfile.flush()
        except OSError:
            return


def cut(at, declared=True):
    """The body ends after a part of it: `at` bytes, or from the end if negative."""

    def act(request):
        content = request.double.objects[request.key]
        part = request.slice(content)
        start, end = part or (0, len(content))
        body = content[start:end][:at]
        headers = request.headers_of(content)
        if part:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
        request.send(206 if part else 200, body, headers, length=(end - start) if declared else False)
        request.handler.close_connection = True

    return act


def now():
    return time.monotonic()
