"""`mcp-server-time`, the reference MCP server for times: a model calls it over standard streams, and its
result is in the answer."""

import json
import os
import subprocess
import sys
import tempfile
import urllib.request

import harness

BINARY = os.environ["CONFORMANCE_BINARY"]
SCENARIO = """
[[step]]
when = { contains = "what time" }
say = [
  { thinking = "I ask the clock." },
  { tool = { name = "clock__convert_time", input = { source_timezone = "UTC", time = "12:00", target_timezone = "Asia/Tokyo" } } },
]
[[step]]
when = { contains = "Asia/Tokyo" }
say = [{ thinking = "Now I know." }, { text = "It is nine in the evening." }]
"""


def start(folder, *arguments):
    """Starts the binary, and returns the process and its address."""
    process = subprocess.Popen(
        [BINARY, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if "http://" in line:
            return process, "http://" + line.split("http://")[1].split()[0].rstrip("/")
    raise harness.CheckFailed(process.stderr.read())


def call(base, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def check(condition, message):
    if not condition:
        raise harness.CheckFailed(message)


def run(folder):
    with open(os.path.join(folder, "scenario.toml"), "w", encoding="utf-8") as file:
        file.write(SCENARIO)
    simulator, upstream = start(folder, "simulate", "--listen", "127.0.0.1:0", "--scenario", "scenario.toml")
    command = json.dumps([sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"])
    with open(os.path.join(folder, "throughline.toml"), "w", encoding="utf-8") as file:
        file.write(
            f'listen = "127.0.0.1:0"\ndata_dir = "data"\n[[backend]]\nname = "claude"\ndialect = "anthropic"\n'
            f'base_url = "{upstream}"\ndefault_model = "claude-sonnet-4-5"\n'
            f'[[mcp]]\nname = "clock"\ncommand = {command}\n'
        )
    gateway, base = start(folder, "serve")
    try:
        servers = json.loads(call(base, "/api/tools"))["servers"]
        check(servers[0]["state"] == "connected", f"the server is {servers[0]}")
        names = [tool["name"] for tool in servers[0]["tools"]]
        check("clock/get_current_time" in names, f"its tools are {names}")
        project = json.loads(call(base, "/api/projects", {"title": "Clock"}))["id"]
        body = {"message": "what time is it there?", "tools": ["clock"]}
        lines = [json.loads(line) for line in call(base, f"/api/projects/{project}/chat", body).splitlines()]
        result = next(line for line in lines if line["type"] == "tool_result")
        check(not result["isError"] and "21:00" in result["content"], f"the result is {result}")
        check(lines[-1]["reason"] == "completed", f"the end is {lines[-1]}")
        print(f"mcp-server-time over {servers[0]['protocol']}: ok")
    finally:
        for process in (gateway, simulator):
            process.terminate()
            process.wait(timeout=40)


with tempfile.TemporaryDirectory() as folder:
    run(folder)
