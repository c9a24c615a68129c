"""The `openai` package's chat completions over upstreams of other dialects.

The package does not know reasoning in this dialect and shows unknown members
unchanged. Some callers send the whole message back; others send only the members
that the package's types name, so that the gateway has to restore the reasoning.
Both are tested.
"""

import json

import openai

import harness
from harness import Call, Turn


class Conversation:
    def __init__(self, model, history_message):
        self.model = model
        self.history_message = history_message
        self.messages = []
        self.sdk = openai.OpenAI(
            base_url=f"{harness.GATEWAY}/v1",
            api_key="conformance",
            # A retry would hide a failed request.
            max_retries=0,
            timeout=harness.TIMEOUT,
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
        # The helper joins the deltas by the package's own rules, also those of unknown members.
        with self.sdk.chat.completions.stream(
            model=self.model,
            reasoning_effort="medium",
            tools=[
                {
                    "type": "function",
                    "function": {
                        "name": harness.TOOL,
                        "description": harness.TOOL_DESCRIPTION,
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
        reply = completion.choices[0].message
        self.messages.append(self.history_message(reply))
        return turn_of(completion)


def whole_message(message):
    """Returns all members, like a caller who copies the message."""
    members = message.to_dict(exclude_none=True)
    # The helper adds its parsed values, which are not members of the dialect.
    members.pop("parsed", None)
    for call in members.get("tool_calls", []):
        call.pop("index", None)
        call["function"].pop("parsed_arguments", None)
    return members


def named_members(message):
    """Returns only the members that the package's types name."""
    members = whole_message(message)
    return {name: members[name] for name in ("role", "content", "tool_calls") if name in members}


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
        signatures=[
            detail.get("signature") or detail.get("data")
            for detail in details
            if detail.get("signature") or detail.get("data")
        ],
        model=completion.model,
    )


def sdk(name, history_message, returns_signatures):
    return harness.Sdk(
        name=f"openai chat, {name},",
        dialect="openai_chat",
        model="gpt-5.2",
        start=lambda model: Conversation(model, history_message),
        stops=("tool_calls", "stop"),
        returns_signatures=returns_signatures,
    )


if __name__ == "__main__":
    harness.main(
        sdk("whole messages", whole_message, returns_signatures=True),
        sdk("named members only", named_members, returns_signatures=False),
    )
