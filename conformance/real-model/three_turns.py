"""Three SDKs, three turns each, through the gateway to a real model.

    python three_turns.py inline|field

Reasoning must arrive as reasoning and text as text, whatever the server's format
is. The gateway measures the times (`/admin/turns`).
"""

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

# For each client: its name in the table, its conversation, its model and its stop reason.
CLIENTS = [
    ("anthropic", anthropic_messages.Conversation, "claude-opus-5", "end_turn"),
    ("responses", openai_responses.Conversation, "gpt-5.2", "completed"),
    ("gemini", google_genai.Conversation, "gemini-3-pro", "STOP"),
]


# The ids of the turns that were read already.
SEEN = set()

HEAD = [
    "| reasoning | client | turn | prompt tokens | first thinking ms | first text ms | all ms "
    "| tokens | tokens/s |",
    "|---|---|---|---|---|---|---|---|---|",
]


def three_turns(start, model, stop):
    """Sends three questions; returns the gateway's report of each turn."""
    conversation = start(model, tools=False)
    rows = []
    written = 0
    for number, question in enumerate(QUESTIONS, 1):
        where = f"turn {number}"
        turn = conversation.say(question)
        harness.check(turn.reasoning.strip(), f"{where}: there is no reasoning")
        harness.check(turn.text.strip(), f"{where}: there is no text")
        for kind, text in (("text", turn.text), ("reasoning", turn.reasoning)):
            harness.check("think>" not in text, f"{where}: the {kind} has a tag: {text!r}")
        harness.check(turn.stop == stop, f"{where}: the stop reason is {turn.stop!r}")
        harness.check(turn.signatures, f"{where}: the reasoning has no signature")
        harness.check(turn.model == model, f"{where}: the reply names the model {turn.model!r}")
        harness.check(turn.output_tokens > 0, f"{where}: the usage has no output tokens")
        rows.append(newest_turn())
        # The reasoning is a part of the output, so the next prompt must contain it too.
        prompt = prompt_tokens(rows[-1])
        harness.check(
            prompt > written,
            f"{where}: the prompt has {prompt} tokens, but the turn before had {written} "
            "with its output: a part of the history is missing",
        )
        written = prompt + rows[-1]["usage"]["output"]
    return rows


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


def row(reasoning, name, number, turn):
    times = turn["ms"]
    streaming_ms = max(times["total"] - (times["first_byte"] or 0), 1)
    tokens = turn["usage"].get("output") or 0
    return (
        f"| {reasoning} | {name} | {number} | {prompt_tokens(turn)} | {times['first_thinking']} | {times['first_text']} "
        f"| {times['total']} | {tokens} | {1000 * tokens / streaming_ms:.0f} |"
    )


def main():
    reasoning = sys.argv[1]
    failed = 0
    table = []
    for name, start, model, stop in CLIENTS:
        try:
            turns = three_turns(start, model, stop)
        except Exception as failure:  # an SDK may raise anything
            failed += 1
            print(f"FAILED  {reasoning}, {name}\n        {harness.describe(failure)}", flush=True)
            continue
        print(f"ok      {reasoning}, {name}: three turns", flush=True)
        table.extend(row(reasoning, name, number, turn) for number, turn in enumerate(turns, 1))
    print("\n" + "\n".join(HEAD + table) + "\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
