"""Credentials from where every AWS tool finds them: each source is the only one whose keys the real server takes.

The server checks signatures and session tokens; the sources are on the loopback, and revoke what they gave before.
"""

import hashlib
import json
import shlex
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from support.credentials import PROOF, Provider, moment
from support.mounting import binary
from support.reading import by_zarr
from support.s3 import EVERYTHING, SERVER, clean_env, fault
from test_s3 import CORPUS, bucket, double, fails, put, real, small_array  # noqa: F401

pytestmark = pytest.mark.skipif(SERVER != "moto", reason="only moto gives out temporary credentials")
STORE = "zarr2/rootarray.zarr"
# Credentials are renewed five minutes before they end.
EARLY = 300


@pytest.fixture
def provider(real):
    one = Provider(real)
    yield one
    one.stop()


class Way:
    """The settings that lead to one source of credentials: variables, options, and files in `room`."""

    def __init__(self, name, provider, room):
        self.name, self.provider, self.room, self.options = name, provider, room, ()
        self.env = {"AWS_REGION": "us-east-1"}
        getattr(self, name.replace("-", "_"))()

    def asked(self):
        """How often the source was asked."""
        return len(self.provider.given)

    def file(self, name, text):
        (self.room / name).write_text(text)
        return str(self.room / name)

    def profile(self, *lines, name="lab"):
        self.env["AWS_CONFIG_FILE"] = self.file("config", "\n".join([f"[profile {name}]", *lines, ""]))
        self.options = ("--profile", name)

    def web(self):
        self.env |= {
            "AWS_WEB_IDENTITY_TOKEN_FILE": self.file("token", PROOF["web"]), "AWS_ROLE_ARN": self.provider.real.role,
            "AWS_ENDPOINT_URL_STS": self.provider.url,
        }

    def container(self):
        self.env |= {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.provider.url}/container",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": PROOF["container"],
        }

    def container_with_token_file(self):
        self.env |= {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.provider.url}/container",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": self.file("token", PROOF["container"]),
        }

    def instance(self):
        self.env |= {"AWS_EC2_METADATA_DISABLED": "false", "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.provider.url}

    def profile_with_process(self):
        code = (
            "import sys, urllib.request\ntry:\n"
            f"    print(urllib.request.urlopen('{self.provider.url}/process').read().decode())\n"
            "except OSError:\n    sys.exit(1)\n"
        )
        self.profile(f"credential_process = {shlex.join([sys.executable, self.file('give.py', code)])}", "region = us-east-1")

    def profile_with_web_identity(self):
        self.profile(
            f"role_arn = {self.provider.real.role}", f"web_identity_token_file = {self.file('token', PROOF['web'])}",
            "region = us-east-1",
        )
        self.env["AWS_ENDPOINT_URL_STS"] = self.provider.url

    def profile_with_sso(self):
        self.profile(
            "sso_session = s", "sso_account_id = 1", "sso_role_name = r", "region = us-east-1", "[sso-session s]",
            "sso_region = us-east-1", "sso_start_url = https://start.example",
        )
        folder = self.room / ".aws" / "sso" / "cache"
        folder.mkdir(parents=True)
        token = {"accessToken": PROOF["sso"], "expiresAt": moment(time.time() + 3600), "region": "us-east-1"}
        (folder / f"{hashlib.sha1(b's').hexdigest()}.json").write_text(json.dumps(token))
        self.env |= {"HOME": str(self.room), "AWS_ENDPOINT_URL_SSO": self.provider.url}


WAYS = [
    "web", "container", "container-with-token-file", "instance", "profile-with-process", "profile-with-web-identity",
    "profile-with-sso",
]


@pytest.fixture
def way(request, provider, room):
    return Way(request.param, provider, room)


@pytest.fixture
def opened(mount, real, bucket):
    """Mounts a store by the credentials of a way, with a log of everything."""

    def make(way, store=STORE, **more):
        options = ["--endpoint-url", real.url, "--log-level", EVERYTHING, *way.options]
        return mount(bucket(store), *options, env=clean_env(**{**way.env, **more}))

    return make


def said(view):
    with open(f"/proc/{view.process.pid}/cmdline") as command:
        return view.text() + command.read() + json.dumps(view.stats())


def tells_no_secret(text, provider):
    for secret in provider.secrets():
        assert secret not in text, f"{secret} is told"


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_each_source_opens_the_store(way, opened):
    view = opened(way)
    assert (by_zarr(view / "") == by_zarr(CORPUS.path(STORE))).all()
    # Asked once for all requests.
    assert way.asked() == 1
    tells_no_secret(said(view), way.provider)


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_credentials_are_renewed_before_they_end(way, opened):
    way.provider.lifetime = EARLY + 4
    view = opened(way)
    first = way.asked()
    way.provider.lifetime = 3600
    time.sleep(5)
    # What was given first is good no longer once the new ones are given.
    assert (by_zarr(view / "") == by_zarr(CORPUS.path(STORE))).all()
    # A source that takes its time is not waited for.
    end = time.monotonic() + 20
    while way.asked() < 2 and time.monotonic() < end:
        time.sleep(0.1)
    assert (first, way.asked()) == (1, 2)
    tells_no_secret(said(view), way.provider)


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_a_source_that_fails_is_named_without_its_secrets(way, real, bucket):
    way.provider.broken = True
    more = clean_env(**way.env, AWS_MAX_ATTEMPTS="1")
    code, text = fails(bucket(STORE), "--endpoint-url", real.url, *way.options, env=more, within=60)
    assert code == (4 if way.name == "instance" else 7), text
    named = {"web": "web identity", "container": "container", "instance": "metadata address"}
    assert "no credentials" in text and named.get(way.name.partition("-")[0], "profile lab") in text
    tells_no_secret(text, way.provider)


@pytest.mark.parametrize("region", ["profile", "environment"])
def test_a_profile_assumes_a_role(region, real, mount, bucket, room):
    config, secrets = room / "config", room / "credentials"
    user = real.users["assumer"]
    told = "region = us-east-1\n" if region == "profile" else ""
    config.write_text(f"[profile lab]\nrole_arn = {real.role}\nsource_profile = base\n{told}")
    secrets.write_text(
        f"[base]\naws_access_key_id = {user['AWS_ACCESS_KEY_ID']}\naws_secret_access_key = {user['AWS_SECRET_ACCESS_KEY']}\n"
    )
    env = {"AWS_CONFIG_FILE": config, "AWS_SHARED_CREDENTIALS_FILE": secrets, "AWS_ENDPOINT_URL_STS": real.url}
    if region == "environment":
        env["AWS_REGION"] = "us-east-1"
    # The user itself may do nothing in the bucket.
    code, _ = fails(bucket(STORE), "--endpoint-url", real.url, env=real.env("assumer"))
    assert code == 4
    view = mount(bucket(STORE), "--endpoint-url", real.url, "--profile", "lab", env=clean_env(**env))
    assert (by_zarr(view / "") == by_zarr(CORPUS.path(STORE))).all()
    assert user["AWS_SECRET_ACCESS_KEY"] not in said(view)


def test_a_profile_assumes_a_role_by_the_environment(real, mount, bucket, room):
    config = room / "config"
    config.write_text(f"[profile lab]\nrole_arn = {real.role}\ncredential_source = Environment\nregion = us-east-1\n")
    env = {"AWS_CONFIG_FILE": config, "AWS_ENDPOINT_URL_STS": real.url}
    view = mount(bucket(STORE), "--endpoint-url", real.url, "--profile", "lab", env=real.env("assumer", **env))
    assert (by_zarr(view / "") == by_zarr(CORPUS.path(STORE))).all()


def test_a_program_that_fails_is_told_of_in_one_line(real, bucket, room):
    program = room / "program"
    program.write_text("#!/bin/sh\nprintf 'secret line\\nsecond line\\n' >&2\nexit 1\n")
    program.chmod(0o755)
    (room / "config").write_text(f"[profile lab]\ncredential_process = {program}\n")
    env = clean_env(AWS_CONFIG_FILE=room / "config")
    code, text = fails(bucket(STORE), "--endpoint-url", real.url, "--profile", "lab", env=env)
    assert code == 7 and "profile lab" in text and "secret" not in text and "second line" not in text
    (room / "config").write_text("[profile lab]\nregion = us-east-1\n")
    code, text = fails(bucket(STORE), "--endpoint-url", real.url, "--profile", "lab", env=env)
    assert code == 4 and "no credentials from profile lab: nothing there tells of any" in text


@pytest.fixture
def proxy():
    """Writes down whom it is asked to connect to, and does not."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_CONNECT(self):
            asked.append(self.path)
            self.send_error(403)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("said", ["web", "profile", "role"])
def test_the_token_service_of_the_region_is_asked(said, proxy, provider, real, bucket, room):
    """Without an endpoint of its own it is Amazon's, of the region that is configured."""
    way = Way("web" if said == "web" else "profile-with-web-identity", provider, room)
    if said == "role":
        way.profile(f"role_arn = {real.role}", "source_profile = base", "[profile base]", "aws_access_key_id = x",
                    "aws_secret_access_key = x")  # fmt: skip
    way.env |= {"AWS_REGION": "eu-north-1", "AWS_CONFIG_FILE": way.env.get("AWS_CONFIG_FILE", "/dev/null")}
    if said != "web":
        text = (room / "config").read_text().replace("us-east-1", "eu-north-1")
        (room / "config").write_text(text)
    del way.env["AWS_ENDPOINT_URL_STS"]
    url, asked = proxy
    more = {"https_proxy": url, "HTTPS_PROXY": url, "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}
    fails(bucket(STORE), "--endpoint-url", real.url, *way.options, "--timeout", "10", env=clean_env(**way.env, **more), within=60)
    assert set(asked) == {"sts.eu-north-1.amazonaws.com:443"}


def test_what_is_set_first_is_asked_alone(provider, real, mount, bucket, room):
    every = {}
    for name in ("instance", "container", "web"):
        every |= Way(name, provider, room).env
    config = room / "profiles"
    user = real.users["all"]
    config.write_text(
        f"[default]\naws_access_key_id = {user['AWS_ACCESS_KEY_ID']}\naws_secret_access_key = {user['AWS_SECRET_ACCESS_KEY']}\n"
    )
    options = ["--endpoint-url", real.url]
    for env, asked in [
        ({**every, **user}, []),
        ({**every, "AWS_SHARED_CREDENTIALS_FILE": config}, []),
        (every, ["web"]),
        ({key: value for key, value in every.items() if "WEB_IDENTITY" not in key}, ["container"]),
        (Way("instance", provider, room).env, ["instance"]),
    ]:
        provider.log.clear()
        with mount(bucket(STORE), *options, env=clean_env(**env)) as view:
            assert (view / ".zarray").exists()
        assert provider.log == asked


def test_no_source_that_is_set_is_passed_over(provider, real, bucket, room):
    """Where the first source fails, the next one is not asked: it would be somebody else."""
    env = Way("web", provider, room).env | Way("container", provider, room).env
    env["AWS_ROLE_ARN"] = "arn:aws:iam::123456789012:role/another"
    code, text = fails(bucket(STORE), "--endpoint-url", real.url, env=clean_env(**env), within=60)
    assert code == 7 and "web identity" in text and provider.log == []
    env = Way("container", provider, room).env | Way("instance", provider, room).env | {"AWS_PROFILE": "nobody"}
    code, text = fails(bucket(STORE), "--endpoint-url", real.url, env=clean_env(**env), within=60)
    assert code in (3, 4, 5) and "nobody" in text and provider.log == []


@pytest.mark.parametrize("command", [["ls"], ["cat", ".zarray"], ["check"], ["info"]])
def test_commands_find_credentials_too(command, provider, real, bucket, room):
    way = Way("container", provider, room)
    name, *rest = command
    done = subprocess.run(
        [binary(), name, bucket(STORE), *rest, "--endpoint-url", real.url], env=clean_env(**way.env), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout, done.stderr
    assert way.asked() == 1
    tells_no_secret(done.stdout + done.stderr, provider)


def test_credentials_that_end_soon_are_not_asked_for_with_each_request(provider, opened, room):
    """A source may give what it has kept for a while, so that less than five minutes of it are left."""
    way = Way("container", provider, room)
    provider.lifetime, provider.lasting = 120, True
    view = opened(way)
    assert (by_zarr(view / "") == by_zarr(CORPUS.path(STORE))).all()
    requests = view.stats()["store"]
    assert sum(requests[kind] for kind in ("get", "head", "list")) > 3
    assert way.asked() <= 2, requests


def test_a_source_that_fails_for_a_while_is_not_noticed(provider, opened, room):
    """What is at hand is good until its end."""
    way = Way("container", provider, room)
    provider.lifetime = EARLY + 3
    view = opened(way)
    time.sleep(4)
    provider.broken = True
    assert (by_zarr(view / "") == by_zarr(CORPUS.path(STORE))).all()
    assert way.asked() == 1


def test_a_source_that_is_silent_is_not_waited_for(provider, opened, room):
    """Neither by who asks it, for long, nor by others."""
    way = Way("container", provider, room)
    provider.lifetime = EARLY + 3
    view = opened(way)
    time.sleep(4)
    provider.answer = lambda request: time.sleep(60)
    start = time.monotonic()
    assert (by_zarr(view / "") == by_zarr(CORPUS.path(STORE))).all()
    assert time.monotonic() - start < 20


@pytest.mark.parametrize("code", ["ExpiredToken", "InvalidAccessKeyId", "TokenRefreshRequired"])
def test_credentials_that_are_refused_again_and_again_are_asked_for_once(code, mount, double, provider, room):
    _, files = small_array()
    put(double, "a", files)
    way = Way("container", provider, room)
    view = mount("s3://b/a", "--endpoint-url", double.url, env=clean_env(**way.env))
    double.faults.append(fault(lambda request: request.error(403, code), kinds="GET"))
    for name in ("0.0", "0.1", "0.2", "0.3"):
        with pytest.raises(PermissionError):
            (view / name).read_bytes()
    assert way.asked() == 2


def test_a_chunk_is_read_although_the_server_takes_its_credentials_for_ended(mount, double, provider, room):
    """The server may think that credentials have ended before the clock here does."""
    values, files = small_array()
    put(double, "a", files)
    way = Way("container", provider, room)
    view = mount("s3://b/a", "--endpoint-url", double.url, env=clean_env(**way.env))
    double.faults.append(fault(lambda request: request.error(400, "ExpiredToken"), kinds="GET", times=1))
    assert (np.fromfile(view / "0.0", "<i4").reshape(10, 10) == values[:10, :10]).all()
    assert (np.fromfile(view / "0.1", "<i4").reshape(10, 10) == values[:10, 10:20]).all()
    assert way.asked() == 2


def test_secrets_given_by_hand_are_told_to_nobody(real, room, bucket, mount, provider):
    """In the environment, with a session token, and refused: the message names the server's reason only, and the log no more."""
    given = {"AWS_ACCESS_KEY_ID": "ASIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "s" * 40, "AWS_SESSION_TOKEN": "t" * 60}
    more = ["--endpoint-url", real.url, "--log-level", EVERYTHING]
    code, text = fails(bucket(STORE), *more, "--log-file", room / "refused", env=clean_env(**given))
    text += (room / "refused").read_text()
    assert code == 4 and " debug " in text and "s" * 40 not in text and "t" * 60 not in text
    # Taken for a while, and then no longer.
    key, *secrets, _ = provider.give("hand")
    given = dict(zip(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"], [key, *secrets]))
    view = mount(bucket(STORE), *more, env=clean_env(**given))
    assert (by_zarr(view / "") == by_zarr(CORPUS.path(STORE))).all()
    real.tell("revoke", key)
    with pytest.raises(PermissionError):
        (view / ".chunkmount" / "source" / ".zarray").read_bytes()
    text = said(view)
    assert " debug " in text and not [secret for secret in secrets if secret in text]
