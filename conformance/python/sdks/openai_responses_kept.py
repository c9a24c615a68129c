"""The `openai` package with responses that the server keeps, over other dialects.

The client holds nothing but the id of the last response: a tool loop, a fork, a
conversation with a name, and a stream in the background that is left in the middle
and taken up again. All is read from the library's own types; the simulator's
recording shows that the whole conversation arrived.
"""

import json
import sys
import time

import openai

from harness import GATEWAY, Upstream, check, http, told

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


def client():
    return openai.OpenAI(base_url=f"{GATEWAY}/v1", api_key="conformance", max_retries=0, timeout=60)


def tool_loop(upstream):
    """Turn 2 sends a result and an id; turn 3 forks from the first response."""
    sdk = client()
    ask = {"model": MODEL, "reasoning": REASONING, "tools": TOOLS}
    first = sdk.responses.create(input="Use a tool", **ask)
    calls = [item for item in first.output if item.type == "function_call"]
    check(calls, f"no call in {[item.type for item in first.output]}")
    upstream.received()
    result = {"type": "function_call_output", "call_id": calls[0].call_id, "output": "17 degrees"}
    second = sdk.responses.create(input=[result], previous_response_id=first.id, **ask)
    check("17 degrees" in second.output_text, second.output_text)
    check(second.previous_response_id == first.id, second.previous_response_id)
    kept = sdk.responses.retrieve(second.id)
    check(kept.output_text == second.output_text, kept.output_text)
    given = sdk.responses.input_items.list(second.id, order="asc").data
    check(json.loads(given[-1].model_dump_json())["type"] == "function_call_output", given[-1])
    fork = sdk.responses.create(input=[result], previous_response_id=first.id, **ask)
    check(fork.id != second.id, fork.id)
    sdk.responses.delete(second.id)
    try:
        sdk.responses.retrieve(second.id)
    except openai.NotFoundError:
        return
    check(False, "a deleted response is still there")


def resumed(_):
    """A stream in the background, left after five events and taken up again."""
    sdk = client()
    stream = sdk.responses.create(
        model=MODEL, reasoning=REASONING, input="ponder this", background=True, stream=True
    )
    heard = []
    for event in stream:
        heard.append(event)
        if len(heard) == 5:
            break
    stream.close()
    id, last = heard[0].response.id, heard[-1].sequence_number
    for _ in range(2):
        rest = list(sdk.responses.retrieve(id, stream=True, starting_after=last))
        numbers = [event.sequence_number for event in heard + rest]
        check(numbers == list(range(len(numbers))), numbers)
        check(rest[-1].type == "response.completed", rest[-1].type)
    whole = sdk.responses.retrieve(id)
    check(whole.status == "completed" and whole.output_text, whole.status)


def named(_):
    """A conversation with a name, and one that is polled for."""
    sdk = client()
    conversation = sdk.conversations.create(metadata={"of": "ada"})
    for text in ("I am Ada.", "Who am I?"):
        said = sdk.responses.create(model=MODEL, input=text, conversation=conversation.id)
        check(said.conversation.id == conversation.id, said.conversation)
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
    for scenario in (tool_loop, resumed, named):
        what = f"openai responses, kept: {scenario.__name__} over {entry['name']}"
        try:
            scenario(upstream)
        except Exception as failure:  # an SDK may raise anything
            failed += 1
            print(f"FAILED  {what}\n        {told(failure)}", flush=True)
        else:
            print(f"ok      {what}", flush=True)
sys.exit(1 if failed else 0)
