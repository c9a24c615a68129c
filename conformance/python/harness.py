"""What every SDK has to show, whichever SDK it is.

An SDK's own file says how it asks, how it keeps a history and what it calls
things; here is what is asked of it, over which upstreams, and how the answers
are judged. What the upstreams really received is read from the simulators'
recordings, because a client that recovers by itself hides a refusal.

The gateway's address comes by environment (THROUGHLINE_URL); which backends
there are and where their simulators listen, the gateway tells.
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
# Long enough for a busy machine; a reply of a simulator takes milliseconds.
PATIENCE = 30

TOOL = "get_weather"
TOOL_ABOUT = "The weather in a city"
TOOL_SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
RESULT = "17 degrees and a light wind"
# What stands for a turn of which nothing is left. No turn here is one.
NOTICE = "[reasoning omitted]"


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
    # Signatures, encrypted contents: what an SDK carries and cannot read.
    seals: list = field(default_factory=list)
    model: str = ""


@dataclass
class Sdk:
    """What differs between SDKs.

    `start(model)` opens a conversation with `say(text)` and `answer(results)`,
    pairs of a call and its result, each a `Turn`; its history is the SDK's
    business.
    """

    name: str
    dialect: str
    model: str
    start: object
    # What the SDK says at the end of a turn that calls a tool, and of one that does not.
    stops: tuple
    # Whether the history that goes back has opaque values in it.
    sealed: bool = True


def http(method, url, body=None):
    """Plain HTTP for what is not the SDK's: the admin API and the recordings."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, data=data, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return json.load(reply)


class Upstream:
    """A backend of the gateway and the recording of the simulator behind it."""

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
        """The bodies that came since the last look; a refusal among them is a failure."""
        listed = http("GET", f"{self.recording}?after={self.seen}")
        self.seen = listed["last"]
        asked = [entry for entry in listed["requests"] if entry["method"] == "POST"]
        for entry in asked:
            check(
                entry["status"] == 200,
                f"`{self.name}` refused with {entry['status']}: {entry['refusal']}",
            )
        return [json.loads(base64.b64decode(entry["body_base64"])) for entry in asked]


def thinking_in(dialect, body):
    """The thinking in a request's history, in the places where its dialect has it."""
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
            # Some servers have no member for it: it stays in the text it came in.
            found.append("<think>" in json.dumps(message.get("content")))
    return [value for value in found if value]


class Failed(Exception):
    """A check that does not hold."""


def check(holds, otherwise):
    if not holds:
        raise Failed(otherwise)


def check_turn(sdk, turn, where, calls):
    """What every turn shows; answers its first call, if there is one."""
    check(turn.reasoning.strip(), f"{where}: no reasoning was seen")
    check("<think" not in turn.text, f"{where}: a tag in the text: {turn.text!r}")
    check(turn.text.strip(), f"{where}: no text was seen")
    stop = sdk.stops[0] if calls else sdk.stops[1]
    check(turn.stop == stop, f"{where}: stopped for {turn.stop!r}, not {stop!r}")
    check(
        turn.input_tokens > 0 and turn.output_tokens > 0,
        f"{where}: usage is {turn.input_tokens} in, {turn.output_tokens} out",
    )
    if sdk.sealed:
        check(turn.seals, f"{where}: nothing seals the reasoning, so it cannot come back")
    check(
        turn.model == sdk.model,
        f"{where}: answered as {turn.model!r}, asked was {sdk.model!r}",
    )
    check(
        len(turn.calls) == calls,
        f"{where}: {len(turn.calls)} tool calls, not {calls}: {turn.calls}",
    )
    for call in turn.calls:
        check(call.name == TOOL, f"{where}: the call is of {call.name!r}")
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
    """One request came and was not refused; with thinking in it where there has to be."""
    bodies = upstream.received()
    check(
        len(bodies) == 1,
        f"{where}: `{upstream.name}` got {len(bodies)} requests, not one",
    )
    check(
        NOTICE not in json.dumps(bodies[0]),
        f"{where}: `{upstream.name}` was told {NOTICE!r} where no turn is empty",
    )
    found = thinking_in(upstream.dialect, bodies[0])
    check(
        found or not thinking,
        f"{where}: `{upstream.name}` got its thinking not back",
    )


def tool_loop(sdk, upstream):
    """The model calls a tool and answers from its result, the thinking back in its place."""
    upstream.activate()
    conversation = sdk.start(sdk.model)
    turn = conversation.say("Use a tool: what is the weather like?")
    call = check_turn(sdk, turn, "first turn", calls=1)
    check_received(upstream, "first turn", thinking=False)
    turn = conversation.answer([(call, RESULT)])
    check_turn(sdk, turn, "second turn", calls=0)
    check(RESULT in turn.text, f"second turn: the result is not quoted: {turn.text!r}")
    check_received(upstream, "second turn", thinking=True)


def calls_at_once(sdk, upstream):
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


def switched(sdk, first, second):
    """A switch between a call and its result, a turn there, and back again."""
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
    # Whoever signs reads all it has signed. Few others want reasoning of earlier
    # questions, and those that do refuse what lacks it.
    signs = first.dialect not in ("openai_chat", "ollama")
    check_received(first, "back", thinking=signs)


def scenarios(sdk, upstreams):
    """Each upstream of another dialect, and a switch from each to the next."""
    others = [upstream for upstream in upstreams if upstream.dialect != sdk.dialect]
    if not others:
        raise SystemExit(f"FAILED  {sdk.name}: no backend speaks another dialect")
    for upstream in others:
        yield f"over {upstream.name}", lambda it=upstream: tool_loop(sdk, it)
        yield (
            f"over {upstream.name}, two calls at once",
            lambda it=upstream: calls_at_once(sdk, it),
        )
    for first, second in zip(others, others[1:] + others[:1]):
        if first is not second:
            name = f"from {first.name} to {second.name} and back"
            yield name, lambda a=first, b=second: switched(sdk, a, b)


def main(*sdks):
    """Runs every scenario of the given SDKs; ends the process."""
    # Some SDKs warn of ageing models and settings; they are what we came to try.
    warnings.simplefilter("ignore")
    listed = http("GET", f"{GATEWAY}/admin/backends")["backends"]
    upstreams = [Upstream(entry) for entry in listed]
    failed = 0
    for sdk in sdks:
        for name, scenario in scenarios(sdk, upstreams):
            started = time.monotonic()
            try:
                scenario()
            except Exception as failure:  # an SDK may raise anything
                failed += 1
                print(f"FAILED  {sdk.name} {name}\n        {told(failure)}", flush=True)
            else:
                took = (time.monotonic() - started) * 1000
                print(f"ok      {sdk.name} {name} ({took:.0f} ms)", flush=True)
    sys.exit(1 if failed else 0)


def told(failure):
    """A failed check in a sentence; anything else with the line of ours it came through."""
    if isinstance(failure, Failed):
        return str(failure)
    ours = [
        frame
        for frame in traceback.extract_tb(failure.__traceback__)
        if os.path.dirname(frame.filename) == os.path.dirname(os.path.abspath(__file__))
    ]
    place = f"{os.path.basename(ours[-1].filename)}:{ours[-1].lineno}: " if ours else ""
    return f"{place}{type(failure).__name__}: {failure}"
