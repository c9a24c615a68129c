"""Runs the README's first example and its recipes for Python SDKs as they are written."""

import json
import os
import subprocess
import sys

import harness
import readme
from harness import check

QUESTION = "Is 91 prime?"
SDKS = {
    "anthropic.py": "anthropic",
    "openai.py": "openai_chat",
    "google-genai.py": "gemini",
}


def run(command, text=None):
    """Runs a recipe without the keys and proxies of this machine; returns what it prints."""
    ended = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=harness.TIMEOUT,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONUTF8": "1"},
    )
    check(ended.returncode == 0, f"ended with {ended.returncode}: {ended.stderr[-1000:]}")
    return ended.stdout


def last_turn():
    return harness.http("GET", f"{harness.GATEWAY}/admin/turns?limit=1")["turns"][0]


def first_example():
    """The reply has thinking, its signature and a text."""
    reply = json.loads(run(["sh", "-ec", readme.recipe("first-example")]))
    thinking, text = reply["content"]
    check(QUESTION in thinking["thinking"], f"the thinking is {thinking}")
    check(thinking["signature"], "the thinking has no signature")
    check(QUESTION in text["text"], f"the text is {text}")


def sdk(name, dialect):
    """The program prints the thinking and the answer, and one turn of its dialect succeeds."""
    before = last_turn()["id"]
    printed = run([sys.executable, "-W", "ignore", "-"], readme.recipe(name))
    shown = dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)
    check(QUESTION in shown.get("thinking", ""), f"there is no thinking in {printed!r}")
    check(QUESTION in shown.get("text", ""), f"there is no answer in {printed!r}")
    turn = last_turn()
    check(turn["id"] != before, "no turn reached the gateway")
    check(
        (turn["client_dialect"], turn["status"]) == (dialect, 200),
        f"the turn is {turn['client_dialect']} with status {turn['status']}",
    )


def main():
    harness.http("POST", f"{harness.GATEWAY}/admin/switch", {"backend": "a"})
    scenarios = {"first example": first_example}
    for name, dialect in SDKS.items():
        scenarios[name] = lambda name=name, dialect=dialect: sdk(name, dialect)
    failed = False
    for name, scenario in scenarios.items():
        try:
            scenario()
        except Exception as failure:  # a recipe may fail in any way
            failed = True
            print(f"FAILED  README {name}\n        {harness.describe(failure)}", flush=True)
        else:
            print(f"ok      README {name}", flush=True)
    sys.exit(1 if failed else 0)


main()
