"""Garage on the loopback: run by the Python of `.venv-s3`, told what to do as `serving.py` says.

`CHUNKMOUNT_GARAGE` names its program. It checks every signature, and that requests are signed for its own region, which is
not the one that most servers have. Who may read a bucket there may list it too.
"""

import json
import os
import secrets
import subprocess
import tempfile
from pathlib import Path

import boto3
from serving import free_ports, running, serve

REGION = "garage"
CONFIG = """
metadata_dir = "{room}/meta"
data_dir = "{room}/data"
db_engine = "sqlite"
replication_factor = 1
rpc_bind_addr = "127.0.0.1:{rpc}"
rpc_public_addr = "127.0.0.1:{rpc}"
rpc_secret = "{secret}"

[s3_api]
s3_region = "{region}"
api_bind_addr = "127.0.0.1:{port}"
root_domain = ".s3.localhost"
"""


def main():
    program = os.environ["CHUNKMOUNT_GARAGE"]
    port, rpc = free_ports(2)
    user = {"AWS_ACCESS_KEY_ID": "GK" + secrets.token_hex(12), "AWS_SECRET_ACCESS_KEY": secrets.token_hex(32)}
    settings = {
        **os.environ, "GARAGE_DEFAULT_ACCESS_KEY": user["AWS_ACCESS_KEY_ID"], "GARAGE_DEFAULT_BUCKET": "bucket",
        "GARAGE_DEFAULT_SECRET_KEY": user["AWS_SECRET_ACCESS_KEY"], "RUST_LOG": "garage=warn",
    }
    with tempfile.TemporaryDirectory(prefix="garage-") as room:
        config = Path(room) / "garage.toml"
        config.write_text(CONFIG.format(room=room, rpc=rpc, port=port, secret=secrets.token_hex(32), region=REGION))
        config.chmod(0o600)
        command = [program, "-c", config]
        with running("Garage", [*command, "server", "--single-node", "--default-bucket"], port, settings):
            url = f"http://127.0.0.1:{port}"
            told = subprocess.run([*command, "json-api", "CreateKey", "{}"], capture_output=True, check=True).stdout
            stranger = json.loads(told)
            users = {
                "all": user,
                "stranger": {"AWS_ACCESS_KEY_ID": stranger["accessKeyId"], "AWS_SECRET_ACCESS_KEY": stranger["secretAccessKey"]},
            }
            keys = {name.lower(): value for name, value in user.items()}
            s3 = boto3.client("s3", endpoint_url=url, region_name=REGION, **keys)
            serve(s3, {"url": url, "users": users, "region": REGION})


main()
