"""The Open Responses specification (version 2026-04-24) over every upstream.

The types come from the package `openresponses-types`, which is generated from
the OpenAPI document of the specification. The order of events and the rules for
WebSockets are those of its text, written down here.

Two rules of the text do not hold, on purpose: OpenAI's own streams do not end with
`[DONE]`, and its libraries know raw reasoning only as `response.reasoning_text`.
"""

import json
import sys
import time
import urllib.error
import urllib.request

import openresponses_types.types as spec
from pydantic import BaseModel, ValidationError
from websockets.sync.client import connect

from harness import GATEWAY, TIMEOUT, Upstream, check, describe, http

MODEL = "gpt-5.2"
TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": False,
    }
]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}


def event_types():
    """Returns the classes of stream events by the name of the event."""
    found = {}
    for value in vars(spec).values():
        is_event = isinstance(value, type) and issubclass(value, BaseModel)
        if is_event and value.__name__.endswith("StreamingEvent"):
            (name,) = [member.value for member in value.model_fields["type"].annotation]
            found[name] = value
    return found


EVENTS = event_types()


def check_type(kind, value, what):
    try:
        kind.model_validate(value)
    except ValidationError as failure:
        problems = [f"{'.'.join(map(str, it['loc']))}: {it['msg']}" for it in failure.errors()]
        check(False, f"{what}: {'; '.join(problems[:5])}")


class Client:
    """Sends requests to one backend and checks every reply."""

    def __init__(self, upstream):
        self.upstream = upstream
        self.url = f"{GATEWAY}/b/{upstream.name}/v1/responses"

    def post(self, body, path="", status=(200,)):
        """Posts a body; returns the reply and its headers."""
        request = urllib.request.Request(
            self.url + path,
            data=json.dumps({"model": MODEL, **body}).encode(),
            headers={"content-type": "application/json", "authorization": "Bearer conformance"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as reply:
                text, found, headers = reply.read().decode(), reply.status, reply.headers
        except urllib.error.HTTPError as refusal:
            text, found, headers = refusal.read().decode(), refusal.code, refusal.headers
        check(found in status, f"status {found}, not {status}: {text[:300]}")
        return text, headers

    def create(self, body):
        """Creates a response; returns it after the checks of its type."""
        text, headers = self.post({"store": False, **body})
        check(headers["content-type"].startswith("application/json"), headers["content-type"])
        response = json.loads(text)
        check_response(response)
        return response

    def stream(self, body):
        """Creates a streamed response; returns it and its events."""
        text, headers = self.post({"store": False, **body, "stream": True})
        check(headers["content-type"].startswith("text/event-stream"), headers["content-type"])
        events = []
        for block in text.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "data" in lines:
                event = json.loads(lines["data"])
                check(lines.get("event") == event["type"], f"the name differs from the type: {block[:200]}")
                check("id" not in lines, "an event has an id")
                events.append(event)
        return check_events(events), events

    def received(self):
        """Returns what the upstream got since the last call, as one text."""
        return json.dumps(self.upstream.received())


def check_response(response):
    check_type(spec.ResponseResource, response, "the response")
    status = response["status"]
    times = response["completed_at"] is not None
    check(times == (status == "completed"), f"{status}, completed at {response['completed_at']}")
    for item in response["output"]:
        check_item(item)
    unfinished = [item for item in response["output"] if item.get("status") == "incomplete"]
    check(not unfinished or status == "incomplete", f"an item is incomplete, the response {status}")
    check(unfinished in ([], response["output"][-1:]), "an incomplete item is not the last one")


def check_item(item):
    """Optional members may be absent, but not null."""
    for name in ("phase", "encrypted_content", "content", "logprobs"):
        check(item.get(name, "") is not None, f"`{name}` is null: {item}")


def check_events(events):
    """Checks the type of each event and their order; returns the final response."""
    check(events and events[0]["type"] == "response.created", f"the first event: {events[:1]}")
    items, parts, done = {}, {}, {}
    for number, event in enumerate(events):
        kind = event["type"]
        if kind == "keepalive":
            continue
        check(kind in EVENTS, f"an unknown event `{kind}`")
        check_type(EVENTS[kind], event, kind)
        check(event["sequence_number"] == number, f"number {event['sequence_number']} at {number}")
        if "response" in event:
            check_response(event["response"])
            check(event["response"]["id"] == events[0]["response"]["id"], "another response id")
            continue
        at = event["output_index"]
        if kind == "response.output_item.added":
            check(at not in items and at not in done, f"added twice: {event}")
            check(event["item"].get("status", "in_progress") == "in_progress", f"begun: {event}")
            items[at] = event["item"]
            continue
        check(at in items, f"no open item: {event}")
        if kind == "response.output_item.done":
            check(event["item"]["id"] == items.pop(at)["id"], f"another id: {event}")
            open_parts = [part for part in parts if part[0] == at]
            check(not open_parts, f"parts are open: {open_parts}")
            done[at] = event["item"]
            continue
        check(event["item_id"] == items[at]["id"], f"another item: {event}")
        index = event.get("content_index", event.get("summary_index"))
        if index is None:
            continue
        part = (at, "summary_index" in event, index)
        if kind.endswith("part.added"):
            check(part not in parts, f"the part was added: {event}")
            parts[part] = ""
            continue
        check(part in parts, f"no open part: {event}")
        if kind.endswith(".delta"):
            parts[part] += event["delta"]
        elif kind.endswith("part.done"):
            text = event["part"].get("text", event["part"].get("refusal"))
            check(text == parts.pop(part), f"another text: {event}")
        elif kind.endswith(".done"):
            text = event.get("text", event.get("refusal"))
            check(text == parts[part], f"another text: {event}")
    last = events[-1]
    ends = ("response.completed", "response.incomplete", "response.failed")
    check(last["type"] in ends, f"the last event is `{last['type']}`")
    response = last["response"]
    check(f"response.{response['status']}" == last["type"], f"{last['type']}: {response['status']}")
    check(not items, f"items are open: {items}")
    check(response["output"] == [done[at] for at in sorted(done)], "the items are not repeated")
    return response


def items_of(response, kind):
    return [item for item in response["output"] if item["type"] == kind]


def text_of(response):
    parts = [part for item in items_of(response, "message") for part in item["content"]]
    return "".join(part.get("text", "") for part in parts)


def user(text):
    return {"type": "message", "role": "user", "content": text}


def plain_text(client):
    """A text, whole and streamed, from a string and from items."""
    for value in ("Count from 1 to 5.", [user("Say hello in three words.")]):
        response = client.create({"input": value})
        check(response["status"] == "completed" and text_of(response), response["output"])
        response, events = client.stream({"input": value})
        check(response["status"] == "completed" and text_of(response), response["output"])
        check(len(items_of(response, "message")) == 1, f"messages: {response['output']}")


def settings(client):
    """The settings of the request are repeated."""
    asked = {
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "max_output_tokens": 900,
        "metadata": {"a": "b"},
        "parallel_tool_calls": False,
        "safety_identifier": "a-user",
        "prompt_cache_key": "one",
        "truncation": "disabled",
    }
    response = client.create({"input": "Hello", **asked})
    for name, value in asked.items():
        check(response[name] == value, f"{name}: {response[name]!r}")


def system_message(client):
    body = {"input": [{"type": "message", "role": "system", "content": "You are a pirate."}, user("Hi")]}
    check(text_of(client.create(body)), "there is no text")
    check("You are a pirate." in client.received(), "the upstream did not get the system message")


def history(client):
    """Assistant messages in the history, with their phase."""
    body = {
        "input": [
            user("My name is Alice."),
            {"type": "message", "role": "assistant", "phase": "commentary", "content": "I note the name."},
            {"type": "message", "role": "assistant", "phase": "final_answer", "content": "Hello Alice."},
            user("What is my name?"),
        ]
    }
    check(text_of(client.create(body)), "there is no text")
    received = client.received()
    for text in ("My name is Alice.", "I note the name.", "Hello Alice."):
        check(text in received, f"the upstream did not get {text!r}")
    # A history may begin with the assistant.
    client.create({"input": body["input"][1:]})


def phases(client):
    """Phases that a model sends come back to it."""
    response = client.create({"input": "use a tool", "tools": TOOLS})
    found = [item["phase"] for item in items_of(response, "message") if "phase" in item]
    check(all(phase in ("commentary", "final_answer") for phase in found), found)
    if client.upstream.dialect == "openai_responses":
        check(found, "the upstream sends phases, and the client got none")


def tools(client):
    """A tool loop, whole and streamed; the items go back unchanged."""
    for send in (client.create, lambda body: client.stream(body)[0]):
        question = user("Use a tool: what is the weather in Paris?")
        response = send({"input": [question], "tools": TOOLS})
        (call,) = items_of(response, "function_call")
        check(json.loads(call["arguments"])["city"], call)
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "17 degrees"}
        answer = send({"input": [question, *response["output"], result], "tools": TOOLS})
        check("17 degrees" in text_of(answer), text_of(answer))


def tool_choice(client):
    """A choice is repeated, and `none` calls nothing."""
    for choice in ("none", "auto", {"type": "function", "name": "get_weather"}):
        response = client.create({"input": "Use a tool", "tools": TOOLS, "tool_choice": choice})
        check(response["tool_choice"] == choice, response["tool_choice"])
        if choice == "none":
            check(not items_of(response, "function_call"), response["output"])


def image(client):
    content = [
        {"type": "input_text", "text": "What do you see?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
    ]
    body = {"input": [{"type": "message", "role": "user", "content": content}]}
    check(text_of(client.create(body)), "there is no text")
    check(PIXEL in client.received(), "the upstream did not get the image")


def structured_output(client):
    format = {"type": "json_schema", "name": "trip", "schema": SCHEMA, "strict": True}
    body = {"input": "Plan a trip.", "text": {"format": format}}
    if client.upstream.name == "chat":
        # This server has no schemas, so the request is refused by name.
        text, _ = client.post(body, status=(400,))
        check(json.loads(text)["error"]["param"] == "text.format", text)
        return
    text, _ = client.post({"store": False, **body})
    response = json.loads(text)
    # The published type of this member allows no schema; OpenAI repeats the schema.
    check(response["text"]["format"]["schema"] == SCHEMA, response["text"])
    trip = json.loads(text_of(response))
    check(isinstance(trip["city"], str) and isinstance(trip["days"], int), trip)


def incomplete(client):
    """A reply that is cut by the limit is incomplete, and so is its last item."""
    for send in (client.create, lambda body: client.stream(body)[0]):
        response = send({"input": "Tell me a long story.", "max_output_tokens": 20})
        check(response["status"] == "incomplete", response["status"])
        check(response["incomplete_details"]["reason"] == "max_output_tokens", response)


def stored(client):
    """A stored response is continued by its id, and found by it."""
    text, _ = client.post({"input": "Remember the word cobalt."})
    first = json.loads(text)
    check(first["store"] is True, first["store"])
    client.received()
    text, _ = client.post({"input": "What is the word?", "previous_response_id": first["id"]})
    second = json.loads(text)
    check_response(second)
    check(second["previous_response_id"] == first["id"], second["previous_response_id"])
    check("cobalt" in client.received(), "the upstream did not get the first turn")
    # Backends of the dialect answer for themselves, with either status.
    unknown = {"input": "x", "previous_response_id": "resp_nobody"}
    text, _ = client.post(unknown, status=(400, 404))
    check(json.loads(text)["error"]["code"] == "previous_response_not_found", text)


def compact(client):
    """A conversation is compacted, and its items go back as they are."""
    name = "My name is Alice."
    parts = [{"type": "input_text", "text": name}]
    for said in (name, [{"role": "user", "content": name}], [{"role": "user", "content": parts}]):
        text, _ = client.post({"input": said}, path="/compact")
        compacted = json.loads(text)
        check_type(spec.CompactResource, compacted, "the compaction")
        check(items_of(compacted, "compaction"), compacted)
        client.received()
        body = {"input": [*compacted["output"], user("What is my name?")]}
        check(text_of(client.create(body)), "there is no text")
        check(name in client.received(), "the upstream did not get the first turn")


class Socket:
    """One WebSocket connection."""

    def __init__(self, client):
        self.client = client
        url = client.url.replace("http://", "ws://")
        headers = {"authorization": "Bearer conformance"}
        self.connecting = connect(url, additional_headers=headers, max_size=None)

    def __enter__(self):
        self.connection = self.connecting.__enter__()
        return self

    def __exit__(self, *failure):
        self.connecting.__exit__(*failure)

    def send(self, body):
        """Sends `response.create`; returns the events that answer it."""
        message = {"type": "response.create", "model": MODEL, "store": False, **body}
        self.connection.send(json.dumps(message))
        events = []
        while True:
            events.append(json.loads(self.connection.recv(timeout=TIMEOUT)))
            if events[-1]["type"] in ("response.completed", "response.incomplete", "response.failed", "error"):
                return events

    def create(self, body):
        return check_events(self.send(body))

    def refused(self, body):
        """Expects an error; returns its code."""
        events = self.send(body)
        check(len(events) == 1 and events[0]["type"] == "error", events)
        check_type(spec.WebSocketErrorEvent, events[0], "the error")
        return events[0]["error"]["code"]


def socket_turns(client):
    """Several turns on one connection, a continuation, and a tool loop."""
    with Socket(client) as socket:
        for word in ("first", "second"):
            check(text_of(socket.create({"input": f"Reply with {word}."})), "there is no text")
        first = socket.create({"input": "Remember the word cobalt."})
        client.received()
        second = socket.create({"input": "What is the word?", "previous_response_id": first["id"]})
        check(second["previous_response_id"] == first["id"], second["previous_response_id"])
        check("cobalt" in client.received(), "the upstream did not get the first turn")
        called = socket.create({"input": "Use a tool", "tools": TOOLS})
        (call,) = items_of(called, "function_call")
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "17 degrees"}
        body = {"input": [result], "tools": TOOLS, "previous_response_id": called["id"]}
        check("17 degrees" in text_of(socket.create(body)), "the result is not quoted")


def socket_reconnect(client):
    """An unstored response is lost with its connection, a stored one is not."""
    for store in (False, True):
        with Socket(client) as socket:
            first = socket.create({"input": "Remember the word copper.", "store": store})
        client.received()
        with Socket(client) as socket:
            body = {"input": "What is the word?", "previous_response_id": first["id"]}
            if store:
                socket.create(body)
                check("copper" in client.received(), "the upstream did not get the first turn")
            else:
                code = socket.refused(body)
                check(code == "previous_response_not_found", code)
                socket.create({"input": "Start again."})


def socket_lost_state(client):
    with Socket(client) as socket:
        code = socket.refused({"input": "x", "previous_response_id": "resp_nobody"})
        check(code == "previous_response_not_found", code)
        check(socket.refused({"input": 5}), "an error without a code")
        socket.create({"input": "Go on."})


def socket_failed_continuation(client):
    """After a failed continuation, the response that it continued is gone."""
    with Socket(client) as socket:
        first = socket.create({"input": "Remember the word ember."})
        stray = {"type": "function_call_output", "call_id": "call_nobody", "output": "x"}
        check(socket.refused({"input": [stray], "previous_response_id": first["id"]}), "no code")
        code = socket.refused({"input": "Go on.", "previous_response_id": first["id"]})
        check(code == "previous_response_not_found", code)


CASES = [
    plain_text,
    settings,
    system_message,
    history,
    phases,
    tools,
    tool_choice,
    image,
    structured_output,
    incomplete,
    stored,
    compact,
    socket_turns,
    socket_reconnect,
    socket_lost_state,
    socket_failed_continuation,
]


def main():
    listed = http("GET", f"{GATEWAY}/admin/backends")["backends"]
    failed = 0
    for entry in listed:
        # A second simulator of the same dialect adds nothing here.
        if entry["name"] == "b":
            continue
        started, problems = time.monotonic(), []
        for case in CASES:
            upstream = Upstream(entry)
            upstream.seen = http("GET", upstream.recording)["last"]
            try:
                case(Client(upstream))
            except Exception as failure:  # a type or a socket may raise anything
                problems.append(f"        {case.__name__}: {describe(failure)}")
        took = (time.monotonic() - started) * 1000
        name = f"Open Responses over {entry['name']}"
        if problems:
            failed += 1
            print(f"FAILED  {name}\n" + "\n".join(problems), flush=True)
        else:
            print(f"ok      {name}, {len(CASES)} cases ({took:.0f} ms)", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
