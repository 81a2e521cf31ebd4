"""A real S3 server on the loopback, which checks signatures: run by the Python of `.venv-s3`, told what to do by lines of JSON.

Its first line of output says where it is and whose keys it takes. Then each line of input is a list: `["upload", BUCKET, KEY,
PATH]` puts a file or a directory there, `["put", BUCKET, KEY, TEXT]` an object, `["delete", BUCKET, KEY]` removes one.
`["issue", "", ""]` is answered by temporary credentials, which `["revoke", "", KEY_ID]` ends. It ends with its input.
"""

import json
import os
import sys

# Who asks first makes the users; after that every request must be signed and allowed.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "12"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402
from moto.sts.models import sts_backends  # noqa: E402

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/reader-of-buckets"


def policy(*actions, **more):
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "*", **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def main():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    anyone = {"endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}
    iam = boto3.client("iam", **anyone)
    users = {}
    permissions = [("all", policy("s3:*")), ("reader", policy("s3:GetObject")), ("assumer", policy("sts:AssumeRole"))]
    for name, document in permissions:
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=document)
        key = iam.create_access_key(UserName=name)["AccessKey"]
        users[name] = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    trusted = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}]}
    iam.create_role(RoleName="reader-of-buckets", AssumeRolePolicyDocument=json.dumps(trusted))
    iam.put_role_policy(RoleName="reader-of-buckets", PolicyName="p", PolicyDocument=policy("s3:*"))

    def client(service, user):
        keys = {name.lower(): value for name, value in users[user].items()}
        return boto3.client(service, endpoint_url=url, region_name="us-east-1", **keys)

    s3, sts = client("s3", "all"), client("sts", "assumer")
    s3.create_bucket(Bucket="bucket")
    print(json.dumps({"url": url, "users": users, "role": ROLE}), flush=True)
    for line in sys.stdin:
        command, bucket, key, *rest = json.loads(line)
        answer = "done"
        if command == "upload":
            upload(s3, bucket, key, rest[0])
        elif command == "put":
            s3.put_object(Bucket=bucket, Key=key, Body=rest[0].encode())
        elif command == "delete":
            s3.delete_object(Bucket=bucket, Key=key)
        elif command == "issue":
            given = sts.assume_role(RoleArn=ROLE, RoleSessionName="test")["Credentials"]
            answer = [given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"]]
        elif command == "revoke":
            roles = sts_backends[ACCOUNT]["aws"].assumed_roles
            roles[:] = [role for role in roles if role.access_key_id != key]
        print(json.dumps(answer), flush=True)
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
