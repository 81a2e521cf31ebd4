"""A real S3 server on the loopback, which checks signatures: run by the Python of `.venv-s3`, told what to do by lines of JSON.

Its first line of output says where it is and whose keys it takes. Then each line of input is a list: `["upload", BUCKET, KEY,
PATH]` puts a file or a directory there, `["put", BUCKET, KEY, TEXT]` an object, `["delete", BUCKET, KEY]` removes one. It ends
with its input.
"""

import json
import os
import sys

# Who asks first makes the users; after that every request must be signed and allowed.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "7"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402


def policy(*actions):
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def main():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    anyone = {"endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}
    iam = boto3.client("iam", **anyone)
    users = {}
    for name, document in [("all", policy("s3:*")), ("reader", policy("s3:GetObject"))]:
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        users[name] = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    mine = users["all"]
    s3 = boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=mine["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=mine["AWS_SECRET_ACCESS_KEY"],
    )
    s3.create_bucket(Bucket="bucket")
    print(json.dumps({"url": url, "users": users}), flush=True)
    for line in sys.stdin:
        command, bucket, key, *rest = json.loads(line)
        if command == "upload":
            upload(s3, bucket, key, rest[0])
        elif command == "put":
            s3.put_object(Bucket=bucket, Key=key, Body=rest[0].encode())
        elif command == "delete":
            s3.delete_object(Bucket=bucket, Key=key)
        print("done", flush=True)
    server.stop()


def upload(s3, bucket, key, path):
    if os.path.isfile(path):
        s3.upload_file(path, bucket, key)
        return
    for here, _, files in os.walk(path):
        for name in files:
            file = os.path.join(here, name)
            s3.upload_file(file, bucket, f"{key}/{os.path.relpath(file, path)}")


main()
