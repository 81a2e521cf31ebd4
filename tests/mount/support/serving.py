"""What the real servers of the tests have in common: they say where they are, and are told what to do by lines of JSON.

`["upload", BUCKET, KEY, PATH]` puts a file or a directory there, `["put", BUCKET, KEY, TEXT]` an object, `["delete", BUCKET, KEY]`
removes one. Each line is answered by one, and the input's end is the server's.
"""

import json
import os
import sys
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


def upload(s3, bucket, key, path):
    if os.path.isfile(path):
        s3.upload_file(path, bucket, key)
        return
    found = [os.path.join(here, name) for here, _, files in os.walk(path) for name in files]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda file: s3.upload_file(file, bucket, f"{key}/{os.path.relpath(file, path)}"), found))
