"""The `ollama` package over upstreams of other dialects.

Its types have no ids for calls. Messages are sent back as the package keeps them,
and a result names only its tool, so the gateway has to find the call by itself.
"""

import uuid

import ollama

import harness
from harness import Call, Turn


class Conversation:
    def __init__(self, model):
        self.model = model
        self.messages = []
        # Without call ids, equal answers of two backends cannot be told apart. The name of the
        # conversation keeps the runs apart, as the ids of sessions do in other clients.
        headers = {"x-throughline-conversation": str(uuid.uuid4())}
        self.sdk = ollama.Client(
            host=harness.GATEWAY, timeout=harness.TIMEOUT, headers=headers
        )

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
                        "description": harness.TOOL_DESCRIPTION,
                        "parameters": harness.TOOL_SCHEMA,
                    },
                }
            ],
            think=True,
            stream=True,
        )
        thinking, content, calls, last = "", "", [], None
        for part in stream:
            harness.check(last is None, "there is a line after the last one")
            thinking += part.message.thinking or ""
            content += part.message.content or ""
            calls.extend(part.message.tool_calls or [])
            last = part if part.done else None
        harness.check(last is not None, "no line has `done: true`")
        self.messages.append(
            ollama.Message(
                role="assistant", content=content, thinking=thinking, tool_calls=calls
            )
        )
        return Turn(
            reasoning=thinking,
            text=content,
            # Calls have no id, so their position is used.
            calls=[
                Call(str(index + 1), call.function.name, dict(call.function.arguments))
                for index, call in enumerate(calls)
            ],
            stop=last.done_reason,
            input_tokens=last.prompt_eval_count or 0,
            output_tokens=last.eval_count or 0,
            model=last.model,
        )


def check_model_requests():
    """Checks the requests about models, which the package sends before a conversation."""
    sdk = ollama.Client(host=harness.GATEWAY, timeout=harness.TIMEOUT)
    names = {model.model for model in sdk.list().models}
    harness.check("qwen3:8b" in names, f"the models of a backend are not listed: {names}")
    shown = sdk.show("claude-opus-5")
    harness.check(
        "thinking" in shown.capabilities,
        f"`thinking` is not a capability: {shown.capabilities}",
    )
    harness.check(sdk.ps().models == [], "the list of loaded models is not empty")
    loaded = sdk.chat(model="claude-opus-5")
    harness.check(loaded.done_reason == "load", f"the done reason is {loaded.done_reason!r}")
    reply = sdk.generate(model="claude-opus-5", prompt="Why is the sky blue?")
    harness.check(reply.response, "`generate` gives no answer")
    harness.check(reply.thinking, "`generate` gives no thinking although it is on by default")


if __name__ == "__main__":
    check_model_requests()
    harness.main(
        harness.Sdk(
            name="ollama",
            dialect="ollama",
            model="claude-opus-5",
            start=Conversation,
            stops=("stop", "stop"),
            returns_signatures=False,
        )
    )
