"""moto on the loopback, which checks signatures: run by the Python of `.venv-s3`, told what to do as `serving.py` says.

Besides, `["issue"]` is answered by temporary credentials, which `["revoke", KEY_ID]` ends.
"""

import json
import os

# Who asks first makes the users; after that every request must be signed and allowed.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "12"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402
from moto.sts.models import sts_backends  # noqa: E402
from serving import serve  # noqa: E402

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/reader-of-buckets"


def policy(action, **who):
    what = {} if who else {"Resource": "*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, **what, **who}]})


def main():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    anyone = {"endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}
    iam = boto3.client("iam", **anyone)
    users = {}
    for name, action in [("all", "s3:*"), ("reader", "s3:GetObject"), ("assumer", "sts:AssumeRole")]:
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=policy(action))
        key = iam.create_access_key(UserName=name)["AccessKey"]
        users[name] = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    trusted = policy("sts:AssumeRole", Principal={"AWS": "*"})
    iam.create_role(RoleName="reader-of-buckets", AssumeRolePolicyDocument=trusted)
    iam.put_role_policy(RoleName="reader-of-buckets", PolicyName="p", PolicyDocument=policy("s3:*"))

    def client(service, user):
        keys = {name.lower(): value for name, value in users[user].items()}
        return boto3.client(service, endpoint_url=url, region_name="us-east-1", **keys)

    s3, sts = client("s3", "all"), client("sts", "assumer")
    s3.create_bucket(Bucket="bucket")

    def issue():
        given = sts.assume_role(RoleArn=ROLE, RoleSessionName="test")["Credentials"]
        return given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"]

    def revoke(key):
        roles = sts_backends[ACCOUNT]["aws"].assumed_roles
        roles[:] = [role for role in roles if role.access_key_id != key]

    serve(s3, {"url": url, "users": users, "role": ROLE}, issue=issue, revoke=revoke)
    server.stop()


main()
