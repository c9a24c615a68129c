// `ollama` over upstreams of other dialects. Messages are sent back unchanged, with the
// ids of their calls.

import { Ollama } from "ollama";

import * as harness from "../harness.js";

class Conversation {
  messages = [];
  sdk = new Ollama({ host: harness.GATEWAY });

  constructor(model) {
    this.model = model;
  }

  say(text) {
    return this.ask({ role: "user", content: text });
  }

  answer(results) {
    return this.ask(
      ...results.map(([call, result]) => ({
        role: "tool",
        tool_name: call.name,
        tool_call_id: call.id,
        content: result,
      })),
    );
  }

  async ask(...messages) {
    this.messages.push(...messages);
    const stream = await this.sdk.chat({
      model: this.model,
      messages: this.messages,
      tools: [
        {
          type: "function",
          function: {
            name: harness.TOOL,
            description: harness.TOOL_DESCRIPTION,
            parameters: harness.TOOL_SCHEMA,
          },
        },
      ],
      think: "medium",
      stream: true,
    });
    const turn = harness.emptyTurn();
    const calls = [];
    for await (const part of stream) {
      turn.reasoning += part.message.thinking ?? "";
      turn.text += part.message.content;
      calls.push(...(part.message.tool_calls ?? []));
      if (part.done) {
        turn.model = part.model;
        turn.stop = part.done_reason;
        turn.inputTokens = part.prompt_eval_count ?? 0;
        turn.outputTokens = part.eval_count ?? 0;
      }
    }
    this.messages.push({
      role: "assistant",
      content: turn.text,
      thinking: turn.reasoning,
      ...(calls.length > 0 ? { tool_calls: calls } : {}),
    });
    turn.calls = calls.map((call) => ({
      id: call.id,
      name: call.function.name,
      arguments: call.function.arguments,
    }));
    return turn;
  }
}

await harness.main({
  name: "ollama",
  dialect: "ollama",
  model: "claude-opus-5",
  start: (model) => new Conversation(model),
  stops: ["stop", "stop"],
  returnsSignatures: false,
});
