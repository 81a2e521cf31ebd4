"""s3s-fs on the loopback: run by the Python of `.venv-s3`, told what to do as `serving.py` says.

`CHUNKMOUNT_S3S` names its program. It checks signatures; its objects are files of a directory, so that names are those files can have.
"""

import os
import secrets
import tempfile
from pathlib import Path

import boto3
from serving import free_ports, running, serve


def main():
    user = {"AWS_ACCESS_KEY_ID": "AKIA" + secrets.token_hex(8).upper(), "AWS_SECRET_ACCESS_KEY": secrets.token_hex(20)}
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="s3s-") as room:
        (Path(room) / "bucket").mkdir()
        keys = ["--access-key", user["AWS_ACCESS_KEY_ID"], "--secret-key", user["AWS_SECRET_ACCESS_KEY"]]
        command = [os.environ["CHUNKMOUNT_S3S"], "--host", "127.0.0.1", "--port", str(port), *keys, room]
        with running("s3s-fs", command, port, {**os.environ, "RUST_LOG": "error"}):
            url = f"http://127.0.0.1:{port}"
            s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **{name.lower(): value for name, value in user.items()})
            serve(s3, {"url": url, "users": {"all": user}})


main()
