"""The `ollama` package over upstreams of other dialects.

Its types have no ids for calls: messages go back as the package holds them, and
results name their tool, so the gateway has to find by itself which call is which.
"""

import ollama

import harness
from harness import Call, Turn


class Conversation:
    def __init__(self, model):
        self.model = model
        self.messages = []
        self.sdk = ollama.Client(host=harness.GATEWAY, timeout=harness.PATIENCE)

    def say(self, text):
        return self.ask({"role": "user", "content": text})

    def answer(self, results):
        return self.ask(
            *(
                {"role": "tool", "tool_name": call.name, "content": result}
                for call, result in results
            )
        )

    def ask(self, *messages):
        self.messages.extend(messages)
        stream = self.sdk.chat(
            model=self.model,
            messages=self.messages,
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
            think=True,
            stream=True,
        )
        thinking, content, calls, last = "", "", [], None
        for part in stream:
            harness.check(last is None, "a line behind the last one")
            thinking += part.message.thinking or ""
            content += part.message.content or ""
            calls.extend(part.message.tool_calls or [])
            last = part if part.done else None
        harness.check(last is not None, "no line says that it is the last")
        self.messages.append(
            ollama.Message(
                role="assistant", content=content, thinking=thinking, tool_calls=calls
            )
        )
        return Turn(
            reasoning=thinking,
            text=content,
            # A place is all there is to tell calls apart by.
            calls=[
                Call(str(place + 1), call.function.name, dict(call.function.arguments))
                for place, call in enumerate(calls)
            ],
            stop=last.done_reason,
            input_tokens=last.prompt_eval_count or 0,
            output_tokens=last.eval_count or 0,
            model=last.model,
        )


def looked_at():
    """What the package asks before it talks: the models there are, and what they can do."""
    sdk = ollama.Client(host=harness.GATEWAY, timeout=harness.PATIENCE)
    names = {model.model for model in sdk.list().models}
    harness.check("qwen3:8b" in names, f"the list lacks the models of a backend: {names}")
    shown = sdk.show("claude-opus-5")
    harness.check("thinking" in shown.capabilities, f"cannot think: {shown.capabilities}")
    harness.check(sdk.ps().models == [], "models are said to be loaded")
    woken = sdk.chat(model="claude-opus-5")
    harness.check(woken.done_reason == "load", f"woken for {woken.done_reason!r}")
    question = sdk.generate(model="claude-opus-5", prompt="Why is the sky blue?")
    harness.check(question.response, "no answer to a single question")
    harness.check(question.thinking, "no thinking although nobody forbade it")


if __name__ == "__main__":
    looked_at()
    harness.main(
        harness.Sdk(
            name="ollama",
            dialect="ollama",
            model="claude-opus-5",
            start=Conversation,
            stops=("stop", "stop"),
            sealed=False,
        )
    )
