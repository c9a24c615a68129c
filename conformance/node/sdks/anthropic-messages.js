// `@anthropic-ai/sdk` over upstreams of other dialects.

import Anthropic from "@anthropic-ai/sdk";

import * as harness from "../harness.js";

class Conversation {
  messages = [];
  sdk = new Anthropic({
    baseURL: harness.GATEWAY,
    apiKey: "conformance",
    // A retry would hide a failed request.
    maxRetries: 0,
    timeout: harness.TIMEOUT_MS,
  });

  constructor(model) {
    this.model = model;
  }

  say(text) {
    return this.ask(text);
  }

  answer(results) {
    return this.ask(
      results.map(([call, result]) => ({
        type: "tool_result",
        tool_use_id: call.id,
        content: result,
      })),
    );
  }

  async ask(content) {
    this.messages.push({ role: "user", content });
    const stream = this.sdk.messages.stream({
      model: this.model,
      max_tokens: 4096,
      thinking: { type: "adaptive", display: "summarized" },
      tools: [
        {
          name: harness.TOOL,
          description: harness.TOOL_DESCRIPTION,
          input_schema: harness.TOOL_SCHEMA,
        },
      ],
      messages: this.messages,
    });
    const message = await stream.finalMessage();
    this.messages.push({ role: "assistant", content: message.content });
    return turnOf(message);
  }
}

function turnOf(message) {
  const turn = harness.emptyTurn();
  turn.stop = message.stop_reason;
  turn.inputTokens = message.usage.input_tokens;
  turn.outputTokens = message.usage.output_tokens;
  turn.model = message.model;
  for (const block of message.content) {
    if (block.type === "thinking") {
      turn.reasoning += block.thinking;
      harness.check(block.signature, "a thinking block has no signature");
      turn.signatures.push(block.signature);
    } else if (block.type === "redacted_thinking") {
      turn.signatures.push(block.data);
    } else if (block.type === "text") {
      turn.text += block.text;
    } else if (block.type === "tool_use") {
      turn.calls.push({ id: block.id, name: block.name, arguments: block.input });
    }
  }
  return turn;
}

await harness.main({
  name: "@anthropic-ai/sdk",
  dialect: "anthropic",
  model: "claude-opus-5",
  start: (model) => new Conversation(model),
  stops: ["tool_use", "end_turn"],
  returnsSignatures: true,
});
