"""The `anthropic` package over upstreams of its own dialect, where nothing is translated.

A tool loop with thinking, a switch, and back. The script reads replies from the
SDK's own types and received requests from the simulators' recordings. A received
body must equal the sent one, byte for byte.
"""

import base64
import json
import sys
import warnings

import anthropic

from harness import GATEWAY, http

# The address of each simulator, by the name of its backend.
SIMULATORS = {
    entry["name"]: entry["base_url"].rstrip("/")
    for entry in http("GET", f"{GATEWAY}/admin/backends")["backends"]
    if entry["name"] in ("a", "b")
}

TOOLS = [
    {
        "name": "get_weather",
        "description": "The weather in a city",
        "input_schema": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    }
]

# A model that shows its thinking, and one whose blocks have an empty text.
SETTINGS = [
    ("claude-sonnet-4-6", {"type": "enabled", "budget_tokens": 2048}),
    ("claude-opus-5", {"type": "adaptive"}),
]


def switch(backend):
    answer = http("POST", f"{GATEWAY}/admin/switch", {"backend": backend})
    assert answer["active"] == backend, answer


def last_id(name):
    return http("GET", f"{SIMULATORS[name]}/simulator/requests")["last"]


class Client:
    """The SDK; keeps the bytes of its last request for comparison."""

    def __init__(self, streaming):
        self.streaming = streaming
        self.sent = b""
        self.sdk = anthropic.Anthropic(
            base_url=GATEWAY,
            api_key="conformance",
            # A retry would hide a failed request.
            max_retries=0,
            timeout=30,
            http_client=anthropic.DefaultHttpxClient(
                event_hooks={"request": [self.record]}
            ),
        )

    def record(self, request):
        self.sent = request.read()

    def ask(self, **arguments):
        """Sends one request; returns the message and the response's headers."""
        if self.streaming:
            with self.sdk.messages.stream(**arguments) as stream:
                kinds = [event.type for event in stream]
                assert kinds[0] == "message_start", kinds
                assert kinds[-1] == "message_stop", kinds
                return stream.get_final_message(), stream.response.headers
        raw = self.sdk.messages.with_raw_response.create(**arguments)
        return raw.parse(), raw.headers


class Conversation:
    """A history as an SDK user keeps it: the reply's content is sent back unchanged."""

    def __init__(self, client, model, thinking):
        self.client = client
        self.model = model
        self.thinking = thinking
        self.messages = []
        # The thinking blocks that each backend has made, in order.
        self.blocks = {"a": [], "b": []}

    def turn(self, backend, content):
        """Sends a turn and checks what the active backend received."""
        before = {name: last_id(name) for name in SIMULATORS}
        self.messages.append({"role": "user", "content": content})
        message, headers = self.client.ask(
            model=self.model,
            max_tokens=4096,
            thinking=self.thinking,
            tools=TOOLS,
            messages=self.messages,
        )
        received = self.received(backend, before)
        own = self.blocks[backend]
        foreign = sum(map(len, self.blocks.values())) - len(own)
        found = [
            part(block)
            for turn in json.loads(received)["messages"]
            if isinstance(turn["content"], list)
            for block in turn["content"]
            if block["type"] in ("thinking", "redacted_thinking")
        ]
        assert found == own, f"{backend} received {found}, but its own blocks are {own}"
        if foreign == 0:
            assert received == self.client.sent, "a body with nothing to change was changed"
        self.check_headers(headers, backend, foreign)

        made = [
            part(block.model_dump())
            for block in message.content
            if block.type in ("thinking", "redacted_thinking")
        ]
        assert made, f"{backend} did not think: {message.content}"
        assert all(signature for _, _, signature in made), f"unsigned thinking: {made}"
        self.blocks[backend].extend(made)
        self.messages.append({"role": "assistant", "content": message.content})
        return message

    def received(self, backend, before):
        """Returns the body that the active backend got; fails if the other one got a request."""
        for name, url in SIMULATORS.items():
            listed = http("GET", f"{url}/simulator/requests?after={before[name]}")
            posted = [
                entry
                for entry in listed["requests"]
                if entry["method"] == "POST" and entry["path"] == "/v1/messages"
            ]
            refused = [entry["refusal"] for entry in posted if entry["status"] != 200]
            assert not refused, f"{name} refused: {refused}"
            expected = 1 if name == backend else 0
            assert len(posted) == expected, f"{name} got {len(posted)} requests, not {expected}"
            if posted:
                body = base64.b64decode(posted[0]["body_base64"])
        return body

    def check_headers(self, headers, backend, foreign):
        assert headers["x-throughline-backend"] == backend, dict(headers)
        assert headers["x-throughline-turn"], dict(headers)
        loss = headers.get("x-throughline-loss")
        if foreign:
            assert loss and f"thinking_omitted={foreign}" in loss, f"loss is {loss!r}"
        else:
            assert loss is None, f"loss is {loss!r}"


def part(block):
    """Returns what must be equal in a thinking block, as (kind, text, signature)."""
    if block["type"] == "redacted_thinking":
        return ("redacted_thinking", "", block["data"])
    return ("thinking", block["thinking"], block["signature"])


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def tool_loop(conversation, backend, question):
    """Sends two requests: the model calls the tool, then answers from its result."""
    message = conversation.turn(backend, question)
    assert message.stop_reason == "tool_use", message.stop_reason
    calls = [block for block in message.content if block.type == "tool_use"]
    assert [call.name for call in calls] == ["get_weather"], calls
    assert set(calls[0].input) == {"city"}, calls[0].input
    answer = conversation.turn(
        backend,
        [{"type": "tool_result", "tool_use_id": calls[0].id, "content": "17 degrees"}],
    )
    assert answer.stop_reason == "end_turn", answer.stop_reason
    assert "17 degrees" in text_of(answer), text_of(answer)


def plain_turn(conversation, backend, question):
    message = conversation.turn(backend, question)
    assert message.stop_reason == "end_turn", message.stop_reason
    assert text_of(message), message.content


def switch_and_back(model, thinking, streaming):
    """Thinking of A is sent to A, not to B, and to A again after the switch back."""
    switch("a")
    conversation = Conversation(Client(streaming), model, thinking)
    mode = "streamed" if streaming else "whole"
    tool_loop(conversation, "a", f"Use a tool, {mode}, with a redacted part.")
    if thinking["type"] == "enabled":
        texts = [text for kind, text, _ in conversation.blocks["a"] if kind == "thinking"]
        assert texts and all(texts), f"thinking without text: {texts}"
    switch("b")
    plain_turn(conversation, "b", "And what do you make of that?")
    switch("a")
    plain_turn(conversation, "a", "Thank you. Is there more to say?")
    tool_loop(conversation, "a", "Use a tool once more.")
    switch("b")
    tool_loop(conversation, "b", "Now you use a tool.")
    assert {kind for kind, _, _ in conversation.blocks["a"]} == {
        "thinking",
        "redacted_thinking",
    }


def main():
    # The SDK warns about old models and settings, which are used here on purpose.
    warnings.simplefilter("ignore")
    failed = 0
    for model, thinking in SETTINGS:
        for streaming in (True, False):
            name = f"{model}, {'streamed' if streaming else 'whole'}"
            try:
                switch_and_back(model, thinking, streaming)
                print(f"ok      {name}")
            except (AssertionError, anthropic.AnthropicError, OSError) as failure:
                failed += 1
                print(f"FAILED  {name}\n        {type(failure).__name__}: {failure}")
    print(f"conformance: {2 * len(SETTINGS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
