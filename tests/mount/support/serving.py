"""What the real servers of the tests have in common: they say where they are, and are told what to do by lines of JSON.

`["upload", BUCKET, KEY, PATH]` puts a file or a directory there, `["put", BUCKET, KEY, TEXT]` an object, `["delete", BUCKET, KEY]`
removes one. Each line is answered by one, and the input's end is the server's.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def serve(s3, told, **more):
    """Says `told`, and obeys. `s3` is a client that may do everything; `more` has further commands by name."""
    commands = {
        "upload": lambda bucket, key, path: upload(s3, bucket, key, path),
        "put": lambda bucket, key, text: s3.put_object(Bucket=bucket, Key=key, Body=text.encode()) and None,
        "delete": lambda bucket, key: s3.delete_object(Bucket=bucket, Key=key) and None,
        **more,
    }
    print(json.dumps(told), flush=True)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(commands[command](*arguments)), flush=True)


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextlib.contextmanager
def running(name, command, port, env):
    """The server `name`, from when it takes connections at `port` on."""
    server = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{name} did not start") from None
                time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait(30)


def upload(s3, bucket, key, path):
    if os.path.isfile(path):
        s3.upload_file(path, bucket, key)
        return
    found = [os.path.join(here, name) for here, _, files in os.walk(path) for name in files]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda file: s3.upload_file(file, bucket, f"{key}/{os.path.relpath(file, path)}"), found))
