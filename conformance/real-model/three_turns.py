"""Three SDKs, two conversations of three turns each, through the gateway to a real model.

    python three_turns.py inline|field|implicit

Reasoning must arrive as reasoning, text as text and a call as a call, whatever the
server's format is, and the next prompt must contain them all. The gateway measures the times (`/admin/turns`).
"""

import itertools
import sys
import time

import anthropic_messages
import google_genai
import harness
import openai_responses

QUESTIONS = [
    "What is a cat?",
    "And what does it eat?",
    "Say that again in other words.",
]

# For each client: its name in the table, its conversation, its model and its stop reasons
# of a turn that calls a tool, and of one that does not.
CLIENTS = [
    ("anthropic", anthropic_messages.Conversation, "claude-opus-5", ("tool_use", "end_turn")),
    ("responses", openai_responses.Conversation, "gpt-5.2", ("completed", "completed")),
    ("gemini", google_genai.Conversation, "gemini-3-pro", ("STOP", "STOP")),
]

# The tokens that a question or a result has at least, with the template's text around it.
MIN_ADDED_TOKENS = 10

# The ids of the turns that were read already.
SEEN = set()

HEAD = [
    "| reasoning | backend | client | conversation | turn | prompt tokens | first thinking ms | first text ms | all ms "
    "| tokens | tokens/s |",
    "|---|---|---|---|---|---|---|---|---|---|---|",
]


def questions(start, model, stops):
    """Sends three questions; yields each turn and the gateway's report of it."""
    conversation = start(model, tools=False)
    for question in QUESTIONS:
        turn = conversation.say(question)
        harness.check(turn.text.strip(), "there is no text")
        harness.check(turn.stop == stops[1], f"the stop reason is {turn.stop!r}")
        harness.check(not turn.calls, f"there are calls: {turn.calls}")
        yield turn


def tool_loop(start, model, stops):
    """Asks a question and answers two calls; the third reply calls again."""
    conversation = start(model)
    turn = conversation.say("What is the weather like in Paris?")
    ids = set()
    for number in (1, 2, 3):
        harness.check(len(turn.calls) == 1, f"not one call: {turn.calls}, text {turn.text!r}")
        [call] = turn.calls
        harness.check(call.name == harness.TOOL, f"the called tool is {call.name!r}")
        harness.check(call.arguments.get("city"), f"the arguments are {call.arguments}")
        harness.check(call.id and call.id not in ids, f"the id {call.id!r} is not new")
        harness.check(turn.stop == stops[0], f"the stop reason is {turn.stop!r}")
        ids.add(call.id)
        yield turn
        if number < 3:
            turn = conversation.answer([(call, harness.RESULT)])


def checked(turns, model):
    """Checks what the turns of both conversations have in common; returns the gateway's reports."""
    reports = []
    written = 0
    for turn in turns:
        harness.check(turn.reasoning.strip(), "there is no reasoning")
        for kind, text in (("text", turn.text), ("reasoning", turn.reasoning)):
            for tag in ("think>", "tool_call>"):
                harness.check(tag not in text, f"the {kind} has a tag: {text!r}")
        harness.check(turn.signatures, "the reasoning has no signature")
        harness.check(turn.model == model, f"the reply names the model {turn.model!r}")
        harness.check(turn.output_tokens > 0, "the usage has no output tokens")
        reports.append(newest_turn())
        # Reasoning and calls are a part of the output, so the next prompt must contain them too.
        prompt = prompt_tokens(reports[-1])
        harness.check(
            prompt >= written + MIN_ADDED_TOKENS,
            f"the prompt has {prompt} tokens, but the turn before had {written} with its "
            "output: a part of the history is missing",
        )
        written = prompt + reports[-1]["usage"]["output"]
    return reports


def newest_turn():
    """Waits for the newest turn in the gateway's list, which appears when its stream has ended."""
    deadline = time.monotonic() + harness.TIMEOUT
    while time.monotonic() < deadline:
        turns = harness.http("GET", f"{harness.GATEWAY}/admin/turns?limit=1")["turns"]
        if turns and turns[0]["id"] not in SEEN and turns[0]["ms"].get("total"):
            SEEN.add(turns[0]["id"])
            return turns[0]
    raise harness.CheckFailed("the gateway does not list the turn")


def prompt_tokens(turn):
    """Returns the size of the whole prompt, with the part that the server had in its cache."""
    kinds = ("input", "cache_read", "cache_write")
    return sum(turn["usage"].get(kind) or 0 for kind in kinds)


def row(turn):
    times = turn["ms"]
    streaming_ms = max(times["total"] - (times["first_byte"] or 0), 1)
    tokens = turn["usage"].get("output") or 0
    cells = [prompt_tokens(turn), times["first_thinking"], times.get("first_text") or "", times["total"]]
    return [*cells, tokens, f"{1000 * tokens / streaming_ms:.0f}"]


def main():
    reasoning = sys.argv[1]
    failed = 0
    table = []
    backends = harness.http("GET", f"{harness.GATEWAY}/admin/backends")["backends"]
    runs = itertools.product([entry["name"] for entry in backends], CLIENTS, (questions, tool_loop))
    for backend, (client, start, model, stops), conversation in runs:
        names = [reasoning, backend, client, conversation.__name__.replace("_", " ")]
        try:
            harness.http("POST", f"{harness.GATEWAY}/admin/switch", {"backend": backend})
            turns = checked(conversation(start, model, stops), model)
            harness.check(len(turns) == 3, f"{len(turns)} turns, not three")
        except Exception as failure:  # an SDK may raise anything
            failed += 1
            print(f"FAILED  {', '.join(names)}\n        {harness.describe(failure)}", flush=True)
            continue
        print(f"ok      {', '.join(names)}", flush=True)
        for number, turn in enumerate(turns, 1):
            table.append(f"| {' | '.join(map(str, [*names, number, *row(turn)]))} |")
    print("\n" + "\n".join(HEAD + table) + "\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
