"""Three SDKs, three turns each, with a real model behind the gateway.

    python three_turns.py inline|field

Reasoning has to arrive as reasoning and text as text, whatever the server made
of them; the times are the gateway's own (`/admin/turns`).
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

# The dialect's name in the table, and how a conversation in it is opened.
CLIENTS = [
    ("anthropic", anthropic_messages.Conversation, "claude-opus-5", "end_turn"),
    ("responses", openai_responses.Conversation, "gpt-5.2", "completed"),
    ("gemini", google_genai.Conversation, "gemini-3-pro", "STOP"),
]


# The turns that were measured already.
SEEN = set()

HEAD = [
    "| reasoning | client | turn | prompt tokens | first thinking ms | first text ms | all ms "
    "| tokens | tokens/s |",
    "|---|---|---|---|---|---|---|---|---|",
]


def three_turns(start, model, stop):
    """Asks three times; answers what the gateway measured of each."""
    conversation = start(model, tools=False)
    rows = []
    written = 0
    for number, question in enumerate(QUESTIONS, 1):
        where = f"turn {number}"
        turn = conversation.say(question)
        harness.check(turn.reasoning.strip(), f"{where}: no reasoning was seen")
        harness.check(turn.text.strip(), f"{where}: no text was seen")
        for kind, said in (("text", turn.text), ("reasoning", turn.reasoning)):
            harness.check("think>" not in said, f"{where}: a tag in the {kind}: {said!r}")
        harness.check(turn.stop == stop, f"{where}: stopped for {turn.stop!r}")
        harness.check(turn.seals, f"{where}: nothing seals the reasoning")
        harness.check(turn.model == model, f"{where}: answered as {turn.model!r}")
        harness.check(turn.output_tokens > 0, f"{where}: no output was counted")
        rows.append(measured())
        # Its reasoning is a part of what the model has written, so the next prompt holds it too.
        prompt = prompt_tokens(rows[-1])
        harness.check(
            prompt > written,
            f"{where}: a prompt of {prompt} tokens, with {written} read and written before: "
            "not all of it came back",
        )
        written = prompt + rows[-1]["usage"]["output"]
    return rows


def measured():
    """The newest turn in the gateway's list, which is written when its stream has ended."""
    until = time.monotonic() + harness.PATIENCE
    while time.monotonic() < until:
        turns = harness.http("GET", f"{harness.GATEWAY}/admin/turns?limit=1")["turns"]
        if turns and turns[0]["id"] not in SEEN and turns[0]["ms"].get("total"):
            SEEN.add(turns[0]["id"])
            return turns[0]
    raise harness.Failed("the gateway does not list the turn")


def prompt_tokens(turn):
    """The whole prompt, whether the server still knew its beginning or not."""
    kinds = ("input", "cache_read", "cache_write")
    return sum(turn["usage"].get(kind) or 0 for kind in kinds)


def row(way, name, number, turn):
    times = turn["ms"]
    spoken = max(times["total"] - (times["first_byte"] or 0), 1)
    tokens = turn["usage"].get("output") or 0
    return (
        f"| {way} | {name} | {number} | {prompt_tokens(turn)} | {times['first_thinking']} | {times['first_text']} "
        f"| {times['total']} | {tokens} | {1000 * tokens / spoken:.0f} |"
    )


def main():
    way = sys.argv[1]
    failed = 0
    table = []
    for name, start, model, stop in CLIENTS:
        try:
            turns = three_turns(start, model, stop)
        except Exception as failure:  # an SDK may raise anything
            failed += 1
            print(f"FAILED  {way}, {name}\n        {harness.told(failure)}", flush=True)
            continue
        print(f"ok      {way}, {name}: three turns", flush=True)
        table.extend(row(way, name, number, turn) for number, turn in enumerate(turns, 1))
    print("\n" + "\n".join(HEAD + table) + "\n", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
