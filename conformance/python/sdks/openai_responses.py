"""The `openai` package's responses over upstreams of other dialects, without state."""

import json

import openai

import harness
from harness import Call, Turn


TOOLS = [
    {
        "type": "function",
        "name": harness.TOOL,
        "description": harness.TOOL_DESCRIPTION,
        "parameters": harness.TOOL_SCHEMA,
        "strict": False,
    }
]


class Conversation:
    def __init__(self, model, tools=True):
        self.model = model
        self.tools = TOOLS if tools else []
        self.items = []
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
                {"type": "function_call_output", "call_id": call.id, "output": result}
                for call, result in results
            )
        )

    def ask(self, *items):
        self.items.extend(items)
        # The helper checks every event against the earlier ones.
        with self.sdk.responses.stream(
            model=self.model,
            reasoning={"effort": "medium", "summary": "auto"},
            include=["reasoning.encrypted_content"],
            store=False,
            tools=self.tools,
            input=self.items,
        ) as stream:
            numbers = [event.sequence_number for event in stream]
            response = stream.get_final_response()
        harness.check(
            numbers == list(range(numbers[0], numbers[0] + len(numbers))),
            f"the events are numbered {numbers}",
        )
        # The helper adds `parsed` and `parsed_arguments`, which are not members of the dialect.
        self.items.extend(
            {
                name: value
                for name, value in output.to_dict().items()
                if not name.startswith("parsed")
            }
            for output in response.output
        )
        return turn_of(response)


def turn_of(response):
    turn = Turn(
        stop=response.status,
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        text=response.output_text,
        model=response.model,
    )
    for item in response.output:
        if item.type == "reasoning":
            turn.reasoning += "".join(part.text for part in item.summary)
            harness.check(item.encrypted_content, "a reasoning item is not encrypted")
            turn.signatures.append(item.encrypted_content)
        elif item.type == "function_call":
            turn.calls.append(Call(item.call_id, item.name, json.loads(item.arguments)))
    return turn


if __name__ == "__main__":
    harness.main(
        harness.Sdk(
            name="openai responses",
            dialect="openai_responses",
            model="gpt-5.2",
            start=Conversation,
            # A response that calls tools is complete like any other.
            stops=("completed", "completed"),
        )
    )
