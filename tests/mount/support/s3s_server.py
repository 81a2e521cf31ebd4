"""s3s-fs on the loopback: run by the Python of `.venv-s3`, told what to do as `serving.py` says.

`CHUNKMOUNT_S3S` names its program. It checks signatures; its objects are files of a directory, so that names are those files can have.
"""

import os
import secrets
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import boto3
from serving import serve


def main():
    user = {"AWS_ACCESS_KEY_ID": "AKIA" + secrets.token_hex(8).upper(), "AWS_SECRET_ACCESS_KEY": secrets.token_hex(20)}
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="s3s-") as room:
        (Path(room) / "bucket").mkdir()
        keys = ["--access-key", user["AWS_ACCESS_KEY_ID"], "--secret-key", user["AWS_SECRET_ACCESS_KEY"]]
        command = [os.environ["CHUNKMOUNT_S3S"], "--host", "127.0.0.1", "--port", str(port), *keys, room]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={**os.environ, "RUST_LOG": "error"})
        try:
            url = f"http://127.0.0.1:{port}"
            end = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if server.poll() is not None or time.monotonic() > end:
                        raise SystemExit("s3s-fs did not start") from None
                    time.sleep(0.1)
            s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **{name.lower(): value for name, value in user.items()})
            serve(s3, {"url": url, "users": {"all": user}})
        finally:
            server.terminate()
            server.wait(30)


main()
