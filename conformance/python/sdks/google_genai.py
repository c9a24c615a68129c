"""The `google-genai` package over upstreams of other dialects.

The history is the one that its chat keeps.
"""

from google import genai
from google.genai import types

import harness
from harness import Call, Turn


TOOLS = [
    types.Tool(
        function_declarations=[
            types.FunctionDeclaration(
                name=harness.TOOL,
                description=harness.TOOL_DESCRIPTION,
                parameters_json_schema=harness.TOOL_SCHEMA,
            )
        ]
    )
]


class Conversation:
    def __init__(self, model, tools=True):
        # The chat works only as long as its client exists.
        self.sdk = genai.Client(
            api_key="conformance",
            http_options=types.HttpOptions(
                base_url=harness.GATEWAY, timeout=harness.TIMEOUT * 1000
            ),
        )
        self.chat = self.sdk.chats.create(
            model=model,
            config=types.GenerateContentConfig(
                thinking_config=types.ThinkingConfig(
                    include_thoughts=True, thinking_level="HIGH"
                ),
                tools=TOOLS if tools else [],
            ),
        )

    def say(self, text):
        return self.ask(text)

    def answer(self, results):
        return self.ask(
            [
                types.Part(
                    function_response=types.FunctionResponse(
                        id=call.id, name=call.name, response={"output": result}
                    )
                )
                for call, result in results
            ]
        )

    def ask(self, message):
        turn = Turn()
        for chunk in self.chat.send_message_stream(message):
            turn.model = chunk.model_version or turn.model
            if chunk.usage_metadata:
                usage = chunk.usage_metadata
                turn.input_tokens = usage.prompt_token_count or 0
                turn.output_tokens = usage.candidates_token_count or 0
            for candidate in chunk.candidates or []:
                if candidate.finish_reason:
                    turn.stop = candidate.finish_reason.value
                for part in (candidate.content and candidate.content.parts) or []:
                    add(turn, part)
        return turn


def add(turn, part):
    if part.thought_signature:
        turn.signatures.append(part.thought_signature)
    if part.function_call:
        call = part.function_call
        turn.calls.append(Call(call.id, call.name, call.args))
    elif part.text and part.thought:
        turn.reasoning += part.text
    elif part.text:
        turn.text += part.text


if __name__ == "__main__":
    harness.main(
        harness.Sdk(
            name="google-genai",
            dialect="gemini",
            model="gemini-3-pro",
            start=Conversation,
            stops=("STOP", "STOP"),
        )
    )
