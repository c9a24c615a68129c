"""The `anthropic` package over upstreams of other dialects."""

import anthropic

import harness
from harness import Call, Turn


TOOLS = [
    {
        "name": harness.TOOL,
        "description": harness.TOOL_DESCRIPTION,
        "input_schema": harness.TOOL_SCHEMA,
    }
]


class Conversation:
    def __init__(self, model, tools=True):
        self.model = model
        self.tools = TOOLS if tools else []
        self.messages = []
        self.sdk = anthropic.Anthropic(
            base_url=harness.GATEWAY,
            api_key="conformance",
            # A retry would hide a failed request.
            max_retries=0,
            timeout=harness.TIMEOUT,
        )

    def say(self, text):
        return self.ask(text)

    def answer(self, results):
        return self.ask(
            [
                {"type": "tool_result", "tool_use_id": call.id, "content": result}
                for call, result in results
            ]
        )

    def ask(self, content):
        self.messages.append({"role": "user", "content": content})
        with self.sdk.messages.stream(
            model=self.model,
            max_tokens=4096,
            thinking={"type": "adaptive", "display": "summarized"},
            tools=self.tools,
            messages=self.messages,
        ) as stream:
            kinds = [event.type for event in stream]
            message = stream.get_final_message()
        harness.check(
            (kinds[0], kinds[-1]) == ("message_start", "message_stop"),
            f"the stream begins with {kinds[0]} and ends with {kinds[-1]}",
        )
        self.messages.append({"role": "assistant", "content": message.content})
        return turn_of(message)


def turn_of(message):
    turn = Turn(
        stop=message.stop_reason,
        input_tokens=message.usage.input_tokens,
        output_tokens=message.usage.output_tokens,
        model=message.model,
    )
    for block in message.content:
        if block.type == "thinking":
            turn.reasoning += block.thinking
            harness.check(block.signature, "a thinking block has no signature")
            turn.signatures.append(block.signature)
        elif block.type == "redacted_thinking":
            turn.signatures.append(block.data)
        elif block.type == "text":
            turn.text += block.text
        elif block.type == "tool_use":
            turn.calls.append(Call(block.id, block.name, block.input))
    return turn


if __name__ == "__main__":
    harness.main(
        harness.Sdk(
            name="anthropic",
            dialect="anthropic",
            model="claude-opus-5",
            start=Conversation,
            stops=("tool_use", "end_turn"),
        )
    )
