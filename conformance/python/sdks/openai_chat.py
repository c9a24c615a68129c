"""The `openai` package's chat completions over upstreams of other dialects.

The package knows nothing of reasoning in this dialect: it shows members it does
not know as they came. Callers differ in what they send back, so both are tried:
the whole message, and only what the package's types name, which leaves the
gateway to find the reasoning by itself.
"""

import json

import openai

import harness
from harness import Call, Turn


class Conversation:
    def __init__(self, model, returned):
        self.model = model
        self.returned = returned
        self.messages = []
        self.sdk = openai.OpenAI(
            base_url=f"{harness.GATEWAY}/v1",
            api_key="conformance",
            # A retry would hide a failed request.
            max_retries=0,
            timeout=harness.PATIENCE,
        )

    def say(self, text):
        return self.ask({"role": "user", "content": text})

    def answer(self, results):
        return self.ask(
            *(
                {"role": "tool", "tool_call_id": call.id, "content": result}
                for call, result in results
            )
        )

    def ask(self, *messages):
        self.messages.extend(messages)
        # The helper adds up deltas as the package thinks right, unknown members too.
        with self.sdk.chat.completions.stream(
            model=self.model,
            reasoning_effort="medium",
            tools=[
                {
                    "type": "function",
                    "function": {
                        "name": harness.TOOL,
                        "description": harness.TOOL_ABOUT,
                        "parameters": harness.TOOL_SCHEMA,
                    },
                }
            ],
            stream_options={"include_usage": True},
            messages=self.messages,
        ) as stream:
            for _ in stream:
                pass
            completion = stream.get_final_completion()
        answered = completion.choices[0].message
        self.messages.append(self.returned(answered))
        return turn_of(completion)


def whole(message):
    """All that came, as a caller does who copies the message."""
    said = message.to_dict(exclude_none=True)
    # The helper adds what it parsed; that is no member of the dialect.
    said.pop("parsed", None)
    for call in said.get("tool_calls", []):
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    return said


def named(message):
    """Only what the package's types name."""
    said = whole(message)
    return {name: said[name] for name in ("role", "content", "tool_calls") if name in said}


def turn_of(completion):
    choice = completion.choices[0]
    extra = choice.message.model_extra or {}
    both = {extra.get("reasoning"), extra.get("reasoning_content")}
    harness.check(
        len(both) == 1,
        f"`reasoning` and `reasoning_content` differ: {sorted(map(repr, both))}",
    )
    details = extra.get("reasoning_details") or []
    return Turn(
        reasoning=extra.get("reasoning") or "",
        text=choice.message.content or "",
        calls=[
            Call(call.id, call.function.name, json.loads(call.function.arguments))
            for call in choice.message.tool_calls or []
        ],
        stop=choice.finish_reason,
        input_tokens=completion.usage.prompt_tokens,
        output_tokens=completion.usage.completion_tokens,
        seals=[
            detail.get("signature") or detail.get("data")
            for detail in details
            if detail.get("signature") or detail.get("data")
        ],
        model=completion.model,
    )


def sdk(name, returned, sealed):
    return harness.Sdk(
        name=f"openai chat, {name},",
        dialect="openai_chat",
        model="gpt-5.2",
        start=lambda model: Conversation(model, returned),
        stops=("tool_calls", "stop"),
        sealed=sealed,
    )


if __name__ == "__main__":
    harness.main(
        sdk("whole messages", whole, sealed=True),
        sdk("named members only", named, sealed=False),
    )
