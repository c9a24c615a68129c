"""The `openai` package with stored responses, over upstreams of other dialects.

The client keeps only the id of the last response. The scenarios are a tool loop
with a fork, a background stream that is left and resumed, and a named
conversation. All values are read from the library's own types.
"""

import json
import sys
import time

import openai

from harness import GATEWAY, Upstream, check, describe, http

MODEL = "gpt-5.2"
REASONING = {"effort": "medium", "summary": "auto"}
TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        "strict": False,
    }
]


def new_client():
    return openai.OpenAI(base_url=f"{GATEWAY}/v1", api_key="conformance", max_retries=0, timeout=60)


def tool_loop(upstream):
    """Turn 2 sends a result and an id; turn 3 forks from the first response."""
    sdk = new_client()
    settings = {"model": MODEL, "reasoning": REASONING, "tools": TOOLS}
    first = sdk.responses.create(input="Use a tool", **settings)
    calls = [item for item in first.output if item.type == "function_call"]
    check(calls, f"there is no call in {[item.type for item in first.output]}")
    upstream.received()
    result = {"type": "function_call_output", "call_id": calls[0].call_id, "output": "17 degrees"}
    second = sdk.responses.create(input=[result], previous_response_id=first.id, **settings)
    check("17 degrees" in second.output_text, second.output_text)
    check(second.previous_response_id == first.id, second.previous_response_id)
    stored = sdk.responses.retrieve(second.id)
    check(stored.output_text == second.output_text, stored.output_text)
    items = sdk.responses.input_items.list(second.id, order="asc").data
    check(json.loads(items[-1].model_dump_json())["type"] == "function_call_output", items[-1])
    fork = sdk.responses.create(input=[result], previous_response_id=first.id, **settings)
    check(fork.id != second.id, fork.id)
    sdk.responses.delete(second.id)
    try:
        sdk.responses.retrieve(second.id)
    except openai.NotFoundError:
        return
    check(False, "a deleted response is still there")


def resumed_stream(_):
    """A background stream is left after five events and resumed."""
    sdk = new_client()
    stream = sdk.responses.create(
        model=MODEL, reasoning=REASONING, input="ponder this", background=True, stream=True
    )
    received = []
    for event in stream:
        received.append(event)
        if len(received) == 5:
            break
    stream.close()
    id, last = received[0].response.id, received[-1].sequence_number
    for _ in range(2):
        rest = list(sdk.responses.retrieve(id, stream=True, starting_after=last))
        numbers = [event.sequence_number for event in received + rest]
        check(numbers == list(range(len(numbers))), numbers)
        check(rest[-1].type == "response.completed", rest[-1].type)
    stored = sdk.responses.retrieve(id)
    check(stored.status == "completed" and stored.output_text, stored.status)


def named_conversation(_):
    """A conversation with an id of its own, then a background response that is polled."""
    sdk = new_client()
    conversation = sdk.conversations.create(metadata={"of": "ada"})
    for text in ("I am Ada.", "Who am I?"):
        response = sdk.responses.create(model=MODEL, input=text, conversation=conversation.id)
        check(response.conversation.id == conversation.id, response.conversation)
    items = sdk.conversations.items.list(conversation.id, order="asc").data
    users = [item for item in items if getattr(item, "role", "") == "user"]
    check(len(users) == 2, [item.type for item in items])
    run = sdk.responses.create(model=MODEL, input="later", background=True)
    while run.status in ("queued", "in_progress"):
        time.sleep(0.05)
        run = sdk.responses.retrieve(run.id)
    check(run.status == "completed", run.status)


failed = 0
for entry in http("GET", f"{GATEWAY}/admin/backends")["backends"]:
    upstream = Upstream(entry)
    if upstream.dialect == "openai_responses":
        continue
    upstream.activate()
    for scenario in (tool_loop, resumed_stream, named_conversation):
        name = f"openai responses, stored: {scenario.__name__} over {entry['name']}"
        try:
            scenario(upstream)
        except Exception as failure:  # an SDK may raise anything
            failed += 1
            print(f"FAILED  {name}\n        {describe(failure)}", flush=True)
        else:
            print(f"ok      {name}", flush=True)
sys.exit(1 if failed else 0)
