"""Joins two rooms, shows what a model thinks while it thinks, and receives its thinking through a signed hook."""

import base64
import hashlib
import hmac
import json
import os
import queue
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer

BASE = os.environ.get("BASE", "http://127.0.0.1:8484")
SECRET = "whsec_" + base64.b64encode(os.urandom(24)).decode()
hook_calls = queue.Queue()


def call(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(BASE + path, data, {"content-type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.loads(reply.read() or b"null")


def is_signed(headers, body):
    """Checks a call after the scheme of Standard Webhooks."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return any(hmac.compare_digest(expected, given) for given in headers["webhook-signature"].split())


class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        valid = is_signed(self.headers, body)
        if valid:
            hook_calls.put(json.loads(body)["data"])
        self.send_response(204 if valid else 401)
        self.end_headers()

    def log_message(self, *_):
        pass


def events(room):
    """The events of a room. The stream stays open."""
    with urllib.request.urlopen(f"{BASE}/api/rooms/{room}/events", timeout=30) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def make_room(title, budget, hook):
    room = call("POST", "/api/rooms", {"title": title})["id"]
    metadata = {"thinking_budget": budget, "system_prompt": f"You are in the room {title}."}
    call("POST", f"/api/rooms/{room}/channels", {"channel": "tutor", "category": "intelligence", "metadata": metadata})
    call("POST", f"/api/rooms/{room}/hooks", {"trigger": "on_ai_thinking", "url": hook, "secret": SECRET})
    return room


def ask(room, question):
    stream = events(room)
    call("POST", f"/api/rooms/{room}/messages", {"participant": "ada", "content": f"@tutor {question}"})
    for event in stream:
        kind, data = event["type"], event["data"]
        if kind == "THINKING_START":
            print("  tutor is thinking: ", end="", flush=True)
        elif kind == "THINKING_DELTA":
            print(data["text"], end="", flush=True)
        elif kind == "THINKING_END":
            print()
        elif kind == "ERROR":
            raise SystemExit(f"error: {data['message']}")
        elif kind == "MESSAGE" and event.get("channel") == "tutor":
            print(f"  tutor: {data['content']}")
            return


def main():
    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hook = f"http://127.0.0.1:{server.server_port}"
    try:
        call("POST", "/api/channels", {"id": "tutor", "thinkingBudget": 1024})
    except urllib.error.HTTPError as error:
        if error.code != 409:  # 409: it is there from an earlier run
            raise SystemExit(error.read().decode()) from error
    for title, budget in [("calm", 2048), ("deep", 8192)]:
        print(f"room {title}, at most {budget} tokens for thinking")
        ask(make_room(title, budget, hook), "why is the sky blue?")
        thought = hook_calls.get(timeout=30)
        print(f"  the hook got {len(thought['text'])} characters of thinking, signed: {thought['signed']}")


main()
