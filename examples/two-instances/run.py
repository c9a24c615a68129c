"""Starts Postgres, Redis and two instances privately, and shows a room at one while the other answers in it.

Needs `throughline` (or its path in THROUGHLINE), `redis-server`, `redis-cli`, and the programs of Postgres. Everything
is in a temporary folder and on loopback, and ends with this program.
"""

import base64
import glob
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

THROUGHLINE = os.environ.get("THROUGHLINE", "throughline")
START_SECONDS = 60


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def postgres_program(name):
    """Debian keeps the programs of each version in a folder of its own."""
    versions = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"), key=lambda path: float(path.split("/")[4]))
    found = versions[-1] if versions else shutil.which(name)
    return found or sys.exit(f"Postgres is not installed: no program `{name}`")


def wait_for(what, works):
    end = time.monotonic() + START_SECONDS
    while not works():
        if time.monotonic() > end:
            sys.exit(f"{what} did not start")
        time.sleep(0.05)


def accepts(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers(base):
    try:
        with urllib.request.urlopen(f"{base}/readyz", timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


class Servers:
    """The programs that run. They end when this ends."""

    def __init__(self, folder):
        self.folder, self.running = folder, []

    def start(self, name, command, **options):
        with open(os.path.join(self.folder, f"{name}.log"), "wb") as log:
            self.running.append(subprocess.Popen(command, stdout=log, stderr=log, **options))

    def stop(self):
        for server in reversed(self.running):
            server.terminate()
        for server in reversed(self.running):
            try:
                server.wait(timeout=30)
            except subprocess.TimeoutExpired:
                server.kill()

    def start_postgres(self):
        port, data = free_port(), os.path.join(self.folder, "postgres")
        os.mkdir(data)
        # Postgres refuses to run as root.
        user = "postgres" if os.geteuid() == 0 else None
        owner = {"user": user, "group": user, "extra_groups": []} if user else {}
        if user:
            os.chmod(self.folder, 0o711)
            os.chown(data, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
        create = [postgres_program("initdb"), "--no-sync", "--auth", "trust", "--username", "postgres", "--pgdata", data]
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL, cwd="/", **owner)
        serve = [postgres_program("postgres"), "-D", data, "-k", data, "-p", str(port), "-c", "listen_addresses=127.0.0.1"]
        self.start("postgres", serve, cwd="/", **owner)
        ready = [postgres_program("pg_isready"), "--quiet", "--host", "127.0.0.1", "--port", str(port)]
        wait_for("Postgres", lambda: subprocess.run(ready, check=False).returncode == 0)
        return f"postgres://postgres@127.0.0.1:{port}/postgres"

    def start_redis(self):
        port = free_port()
        self.start("redis", ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", self.folder])
        wait_for("Redis", lambda: accepts(port))
        return port

    def start_instance(self, name, database, redis, keyring):
        """Two instances need the same database, the same bus and the same keyring."""
        port, folder = free_port(), os.path.join(self.folder, name)
        os.mkdir(folder)
        with open(os.path.join(folder, "throughline.toml"), "w", encoding="utf-8") as file:
            file.write(
                f'listen = "127.0.0.1:{port}"\ndata_dir = "data"\n'
                f'[store]\nurl = "{database}"\n[redis]\nurl = "redis://127.0.0.1:{redis}"\n'
                '[[backend]]\nname = "simulator"\ndialect = "simulator"\ndefault_model = "claude-sonnet-5"\n'
            )
        environment = {**os.environ, "THROUGHLINE_KEYRING": keyring}
        self.start(name, [THROUGHLINE, "serve", "--config", "throughline.toml"], cwd=folder, env=environment)
        base = f"http://127.0.0.1:{port}"
        wait_for(f"instance {name}", lambda: answers(base))
        return base


def call(base, path, body):
    request = urllib.request.Request(base + path, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.loads(reply.read() or b"null")


def follow(base, room):
    """Shows the room as this instance sees it, until the answer is there."""
    with urllib.request.urlopen(f"{base}/api/rooms/{room}/events", timeout=30) as stream:
        yield
        for line in stream:
            if not line.startswith(b"data: "):
                continue
            event = json.loads(line.removeprefix(b"data: "))
            kind, data = event["type"], event["data"]
            if kind == "THINKING_DELTA":
                print(f"  it thinks: {data['text']}")
            elif kind == "ERROR":
                sys.exit(f"error: {data['message']}")
            elif kind == "MESSAGE" and event.get("channel") == "tutor":
                print(f"  it says: {data['content']}")
                return
            yield


class Counter(threading.Thread):
    """Counts the messages on the channels for other programs, with a client of Redis."""

    def __init__(self, redis):
        super().__init__(daemon=True)
        self.command = ["redis-cli", "-p", str(redis), "--csv", "PSUBSCRIBE", "chat_stream*"]
        self.ready, self.counts = threading.Event(), {}

    def run(self):
        with subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True) as client:
            for line in client.stdout:
                if line.startswith('"psubscribe"'):
                    self.ready.set()
                elif line.startswith('"pmessage"'):
                    channel = line.split('","')[2]
                    self.counts[channel] = self.counts.get(channel, 0) + 1
                    if r'\"type\":\"done\"' in line:
                        client.terminate()


def main():
    with tempfile.TemporaryDirectory() as folder:
        servers = Servers(folder)
        try:
            database, redis = servers.start_postgres(), servers.start_redis()
            keyring = base64.b64encode(os.urandom(32)).decode()
            one = servers.start_instance("one", database, redis, keyring)
            two = servers.start_instance("two", database, redis, keyring)
            call(one, "/api/channels", {"id": "tutor", "thinkingBudget": 2048})
            room = call(one, "/api/rooms", {"title": "Two instances"})["id"]
            call(one, f"/api/rooms/{room}/channels", {"channel": "tutor", "category": "intelligence"})
            counter = Counter(redis)
            counter.start()
            counter.ready.wait()
            events = follow(two, room)
            next(events)
            print(f"asked at {one}, read at {two}:")
            call(one, f"/api/rooms/{room}/messages", {"participant": "ada", "content": "@tutor why is the sky blue?"})
            for _ in events:
                pass
            counter.join(timeout=30)
            for channel, count in sorted(counter.counts.items()):
                print(f"{count} messages on {channel}")
        finally:
            servers.stop()


if __name__ == "__main__":
    main()
