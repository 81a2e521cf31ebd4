"""Who gives out credentials, on the loopback: a token service, a container's agent, an instance's metadata, and single sign-on.

What is given is good for the real server of `s3.py` alone, and only what was given last: the rest is revoked.
"""

import json
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler

from .s3 import Loopback

# What proves who asks. None of these may be told to anybody else.
PROOF = {way: f"proof-for-{way}-{'0' * 16}" for way in ("web", "container", "instance", "sso")}


# What services say when they fail: JSON, and the token service XML.
TROUBLE = [
    ("application/json", '{"message": "so it is"}'),
    ("text/xml", "<ErrorResponse><Error><Type>Receiver</Type><Code>InternalFailure</Code><Message>so it is</Message></Error></ErrorResponse>"),
]


class Provider(Loopback):
    """Gives credentials that end after `lifetime` seconds. `log` has the ways they were asked for.

    Each that are given end those given before, unless `lasting`.
    """

    def __init__(self, real, lifetime=3600):
        self.real, self.lifetime, self.log, self.given = real, lifetime, [], []
        self.broken = self.lasting = False
        self.lock = threading.Lock()
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self.body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                status, kind, text = provider.answer(self)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text.encode())))
                if self.command == "PUT":
                    self.send_header("X-aws-ec2-metadata-token-ttl-seconds", "21600")
                self.end_headers()
                self.wfile.write(text.encode())

            do_PUT = do_POST = do_GET

            def log_message(self, *_):
                pass

        super().__init__(Handler)

    def secrets(self):
        """What must be in no text: secret keys and tokens that were given, and what they were given for."""
        return [*PROOF.values(), *(part for given in self.given for part in given[1:])]

    def count(self, way):
        return self.log.count(way)

    def answer(self, request):
        url = urllib.parse.urlsplit(request.path)
        if self.broken:
            return 500, *TROUBLE[request.command == "POST"]
        if request.command == "POST":
            return self.web(dict(urllib.parse.parse_qsl(request.body)))
        if url.path.startswith("/latest/"):
            return self.instance(request, url.path)
        if url.path == "/federation/credentials":
            asked = dict(urllib.parse.parse_qsl(url.query))
            if request.headers.get("x-amz-sso_bearer_token") != PROOF["sso"] or asked != {"account_id": "1", "role_name": "r"}:
                return refused("sso")
            key, secret, token, end = self.give("sso")
            keys = {"accessKeyId": key, "secretAccessKey": secret, "sessionToken": token, "expiration": int(end * 1000)}
            return 200, "application/json", json.dumps({"roleCredentials": keys})
        if url.path == "/container":
            if request.headers.get("Authorization") != PROOF["container"]:
                return refused("container")
            return self.keys("container")
        if url.path == "/process":
            return self.keys("process", Version=1)
        return refused(url.path)

    def web(self, asked):
        wanted = ("AssumeRoleWithWebIdentity", PROOF["web"], self.real.role)
        if (asked["Action"], asked["WebIdentityToken"], asked["RoleArn"]) != wanted:
            return refused("web")
        key, secret, token, end = self.give("web")
        return 200, "text/xml", (
            '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            "<AssumeRoleWithWebIdentityResult><AssumedRoleUser>"
            f"<Arn>{self.real.role}</Arn><AssumedRoleId>A:test</AssumedRoleId></AssumedRoleUser><Credentials>"
            f"<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
            f"<SessionToken>{token}</SessionToken><Expiration>{moment(end)}</Expiration></Credentials>"
            "</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        )

    def instance(self, request, path):
        if path == "/latest/api/token" and request.command == "PUT":
            return 200, "text/plain", PROOF["instance"]
        if request.headers.get("X-aws-ec2-metadata-token") != PROOF["instance"]:
            return 401, "text/plain", "unauthorized"
        folder = "/latest/meta-data/iam/security-credentials/"
        if path == folder:
            return 200, "text/plain", "the-role"
        if path == folder + "the-role":
            return self.keys("instance", Code="Success", Type="AWS-HMAC")
        return 404, "text/plain", "no such thing"

    def keys(self, way, **more):
        key, secret, token, end = self.give(way)
        name = "SessionToken" if way == "process" else "Token"
        keys = {"AccessKeyId": key, "SecretAccessKey": secret, name: token, "Expiration": moment(end), **more}
        return 200, "application/json", json.dumps(keys)

    def give(self, way):
        with self.lock:
            new = self.real.tell("issue")
            if self.given and not self.lasting:
                self.real.tell("revoke", self.given[-1][0])
            self.given.append(new)
            self.log.append(way)
            return *new, time.time() + self.lifetime


def refused(what):
    return 403, "text/plain", f"not by {what}"


def moment(end):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end))
