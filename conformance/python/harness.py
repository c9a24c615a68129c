"""The scenarios and checks that are the same for every SDK.

Each SDK has its own file, which knows how the SDK sends a request, how it keeps
a history and what its types are called. This file has the questions, the
upstreams and the checks. It reads what an upstream received from the simulator's
recording, because a client that recovers by itself hides a refusal.

THROUGHLINE_URL is the gateway's address. The gateway's admin API lists the
backends and the addresses of their simulators.
"""

import base64
import json
import os
import sys
import time
import traceback
import urllib.request
import warnings
from dataclasses import dataclass, field

GATEWAY = os.environ.get("THROUGHLINE_URL", "").rstrip("/")
# Seconds. A simulator replies within milliseconds; the rest is for a busy machine.
TIMEOUT = 30

TOOL = "get_weather"
TOOL_DESCRIPTION = "The weather in a city"
TOOL_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
RESULT = "17 degrees and a light wind"
# The gateway sends this for an assistant turn that lost all its content. No turn here does.
PLACEHOLDER = "[reasoning omitted]"


@dataclass
class Call:
    """A tool call, as the SDK's types show it."""

    id: str
    name: str
    arguments: dict


@dataclass
class Turn:
    """One reply, as the SDK's types show it."""

    reasoning: str = ""
    text: str = ""
    calls: list = field(default_factory=list)
    stop: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    # Signatures and encrypted contents, which the SDK returns unread.
    signatures: list = field(default_factory=list)
    model: str = ""


@dataclass
class Sdk:
    """What differs between SDKs.

    `start(model)` opens a conversation, which keeps its own history. Its methods
    `say(text)` and `answer(results)` each return a `Turn`; `results` are pairs of
    a call and its result.
    """

    name: str
    dialect: str
    model: str
    start: object
    # The SDK's stop reason of a turn that calls a tool, and of one that does not.
    stops: tuple
    # Whether the SDK sends signatures or encrypted contents back with the history.
    returns_signatures: bool = True


def http(method, url, body=None):
    """Sends a request without an SDK: to the admin API or to a recording."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
        return json.load(reply)


class Upstream:
    """A backend of the gateway, with the recording of its simulator."""

    def __init__(self, entry):
        self.name = entry["name"]
        self.dialect = entry["dialect"]
        self.recording = entry["base_url"].rstrip("/") + "/simulator/requests"
        self.seen = 0

    def activate(self):
        answer = http("POST", f"{GATEWAY}/admin/switch", {"backend": self.name})
        check(answer["active"] == self.name, f"the switch answered {answer}")
        self.seen = http("GET", self.recording)["last"]

    def received(self):
        """Returns the bodies since the last call; fails if one of them was refused."""
        listed = http("GET", f"{self.recording}?after={self.seen}")
        self.seen = listed["last"]
        posted = [entry for entry in listed["requests"] if entry["method"] == "POST"]
        for entry in posted:
            check(
                entry["status"] == 200,
                f"`{self.name}` refused with {entry['status']}: {entry['refusal']}",
            )
        return [json.loads(base64.b64decode(entry["body_base64"])) for entry in posted]


def thinking_in(dialect, body):
    """Returns the thinking in a request's history, from the members that its dialect uses."""
    found = []
    if dialect == "anthropic":
        for message in body["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else []
            for block in blocks:
                found.append(block.get("signature") or block.get("data"))
    elif dialect == "openai_responses":
        for item in body["input"]:
            if item.get("type") == "reasoning":
                found.append(item.get("encrypted_content"))
    elif dialect == "gemini":
        for content in body["contents"]:
            for part in content["parts"]:
                found.append(part.get("thoughtSignature"))
    elif dialect == "ollama":
        for message in body["messages"]:
            found.append(message.get("thinking"))
    elif dialect == "openai_chat":
        for message in body["messages"]:
            found.append(message.get("reasoning_content") or message.get("reasoning"))
            # Some servers have no member for thinking and keep it as tags in the text.
            found.append("<think>" in json.dumps(message.get("content")))
    return [value for value in found if value]


class CheckFailed(Exception):
    """A check that does not hold."""


def check(condition, message):
    if not condition:
        raise CheckFailed(message)


def check_turn(sdk, turn, where, calls):
    """Checks what every turn has in common; returns its first call, if there is one."""
    check(turn.reasoning.strip(), f"{where}: there is no reasoning")
    check("<think" not in turn.text, f"{where}: the text has a tag: {turn.text!r}")
    check(turn.text.strip(), f"{where}: there is no text")
    stop = sdk.stops[0] if calls else sdk.stops[1]
    check(turn.stop == stop, f"{where}: the stop reason is {turn.stop!r}, not {stop!r}")
    check(
        turn.input_tokens > 0 and turn.output_tokens > 0,
        f"{where}: usage is {turn.input_tokens} in, {turn.output_tokens} out",
    )
    if sdk.returns_signatures:
        check(
            turn.signatures,
            f"{where}: the reasoning has no signature, so it cannot be sent back",
        )
    check(
        turn.model == sdk.model,
        f"{where}: the reply names the model {turn.model!r}, the request {sdk.model!r}",
    )
    check(
        len(turn.calls) == calls,
        f"{where}: {len(turn.calls)} tool calls, not {calls}: {turn.calls}",
    )
    for call in turn.calls:
        check(call.name == TOOL, f"{where}: the called tool is {call.name!r}")
        check(call.id, f"{where}: the call has no id")
        city = call.arguments.get("city")
        check(
            isinstance(city, str) and city,
            f"{where}: the call's arguments are {call.arguments}",
        )
    ids = {call.id for call in turn.calls}
    check(len(ids) == calls, f"{where}: calls share an id: {turn.calls}")
    return turn.calls[0] if calls else None


def check_received(upstream, where, thinking):
    """Checks that one request came and was not refused; `thinking`: that it has thinking in it."""
    bodies = upstream.received()
    check(
        len(bodies) == 1,
        f"{where}: `{upstream.name}` got {len(bodies)} requests, not one",
    )
    check(
        PLACEHOLDER not in json.dumps(bodies[0]),
        f"{where}: `{upstream.name}` got {PLACEHOLDER!r} although no turn is empty",
    )
    found = thinking_in(upstream.dialect, bodies[0])
    check(
        found or not thinking,
        f"{where}: `{upstream.name}` did not get its thinking back",
    )


def tool_loop(sdk, upstream):
    """The model calls a tool and answers from its result; its thinking is sent back."""
    upstream.activate()
    conversation = sdk.start(sdk.model)
    turn = conversation.say("Use a tool: what is the weather like?")
    call = check_turn(sdk, turn, "first turn", calls=1)
    check_received(upstream, "first turn", thinking=False)
    turn = conversation.answer([(call, RESULT)])
    check_turn(sdk, turn, "second turn", calls=0)
    check(RESULT in turn.text, f"second turn: the result is not quoted: {turn.text!r}")
    check_received(upstream, "second turn", thinking=True)


def parallel_calls(sdk, upstream):
    """Two calls in one turn, and both results in the next."""
    upstream.activate()
    conversation = sdk.start(sdk.model)
    turn = conversation.say("Use a tool in parallel, please.")
    check_turn(sdk, turn, "first turn", calls=2)
    check_received(upstream, "first turn", thinking=False)
    results = [f"{RESULT} in {number}" for number in ("one", "two")]
    turn = conversation.answer(list(zip(turn.calls, results)))
    check_turn(sdk, turn, "second turn", calls=0)
    for result in results:
        check(result in turn.text, f"second turn: {result!r} is not quoted: {turn.text!r}")
    check_received(upstream, "second turn", thinking=True)


def switch_and_back(sdk, first, second):
    """A switch between a call and its result, a tool loop on the other backend, and back."""
    first.activate()
    conversation = sdk.start(sdk.model)
    call = check_turn(sdk, conversation.say("Use a tool, please."), "before", calls=1)
    check_received(first, "before", thinking=False)
    second.activate()
    turn = conversation.answer([(call, RESULT)])
    check_turn(sdk, turn, "after the switch", calls=0)
    check(RESULT in turn.text, f"after the switch: the result is lost: {turn.text!r}")
    check_received(second, "after the switch", thinking=False)
    call = check_turn(
        sdk, conversation.say("Use a tool again."), "the next loop", calls=1
    )
    check_received(second, "the next loop", thinking=False)
    turn = conversation.answer([(call, RESULT)])
    check_turn(sdk, turn, "the next loop's end", calls=0)
    check_received(second, "the next loop's end", thinking=True)
    first.activate()
    check_turn(sdk, conversation.say("Use a tool once more."), "back", calls=1)
    # Upstreams that sign want all thinking that they have signed. Few others want the
    # reasoning of earlier questions, and those refuse a request without it.
    signs = first.dialect not in ("openai_chat", "ollama")
    check_received(first, "back", thinking=signs)


def scenarios(sdk, upstreams):
    """Yields the scenarios: each upstream of another dialect, a switch from each to the next."""
    others = [upstream for upstream in upstreams if upstream.dialect != sdk.dialect]
    if not others:
        raise SystemExit(f"FAILED  {sdk.name}: no backend speaks another dialect")
    for upstream in others:
        yield f"over {upstream.name}", lambda it=upstream: tool_loop(sdk, it)
        yield (
            f"over {upstream.name}, two calls at once",
            lambda it=upstream: parallel_calls(sdk, it),
        )
    for first, second in zip(others, others[1:] + others[:1]):
        if first is not second:
            name = f"from {first.name} to {second.name} and back"
            yield name, lambda a=first, b=second: switch_and_back(sdk, a, b)


def main(*sdks):
    """Runs every scenario of the given SDKs and exits."""
    # Some SDKs warn about old models and settings, which are used here on purpose.
    warnings.simplefilter("ignore")
    listed = http("GET", f"{GATEWAY}/admin/backends")["backends"]
    upstreams = [Upstream(entry) for entry in listed]
    run(
        (f"{sdk.name} {name}", scenario)
        for sdk in sdks
        for name, scenario in scenarios(sdk, upstreams)
    )


def run(named_scenarios):
    """Runs scenarios, which come with their names, and exits."""
    failed = 0
    for name, scenario in named_scenarios:
        started = time.monotonic()
        try:
            scenario()
        except Exception as failure:  # an SDK may raise anything
            failed += 1
            print(f"FAILED  {name}\n        {describe(failure)}", flush=True)
        else:
            took = (time.monotonic() - started) * 1000
            print(f"ok      {name} ({took:.0f} ms)", flush=True)
    sys.exit(1 if failed else 0)


def describe(failure):
    """Returns the message of a failed check; for other exceptions also our line."""
    if isinstance(failure, CheckFailed):
        return str(failure)
    ours = [
        frame
        for frame in traceback.extract_tb(failure.__traceback__)
        if os.path.dirname(frame.filename) == os.path.dirname(os.path.abspath(__file__))
    ]
    location = f"{os.path.basename(ours[-1].filename)}:{ours[-1].lineno}: " if ours else ""
    return f"{location}{type(failure).__name__}: {failure}"
