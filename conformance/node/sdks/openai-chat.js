// `openai`'s chat completions over upstreams of other dialects.
//
// The package does not know reasoning in this dialect, and its helper keeps only the
// last delta of an unknown member. So this file joins the deltas itself, and sends the
// message back without reasoning, as most callers do.

import OpenAI from "openai";

import * as harness from "../harness.js";

class Conversation {
  messages = [];
  sdk = new OpenAI({
    baseURL: `${harness.GATEWAY}/v1`,
    apiKey: "conformance",
    // A retry would hide a failed request.
    maxRetries: 0,
    timeout: harness.TIMEOUT_MS,
  });

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
        tool_call_id: call.id,
        content: result,
      })),
    );
  }

  async ask(...messages) {
    this.messages.push(...messages);
    const stream = await this.sdk.chat.completions.create({
      model: this.model,
      reasoning_effort: "medium",
      stream: true,
      stream_options: { include_usage: true },
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
      messages: this.messages,
    });
    const turn = harness.emptyTurn();
    const calls = [];
    for await (const chunk of stream) {
      add(turn, calls, chunk);
    }
    this.messages.push({
      role: "assistant",
      content: turn.text,
      ...(calls.length > 0 ? { tool_calls: calls } : {}),
    });
    turn.calls = calls.map((call) => ({
      id: call.id,
      name: call.function.name,
      arguments: JSON.parse(call.function.arguments),
    }));
    return turn;
  }
}

function add(turn, calls, chunk) {
  turn.model = chunk.model;
  turn.inputTokens = chunk.usage?.prompt_tokens ?? turn.inputTokens;
  turn.outputTokens = chunk.usage?.completion_tokens ?? turn.outputTokens;
  for (const choice of chunk.choices) {
    const delta = choice.delta;
    harness.check(
      delta.reasoning === delta.reasoning_content,
      "`reasoning` and `reasoning_content` differ",
    );
    turn.reasoning += delta.reasoning ?? "";
    turn.text += delta.content ?? "";
    turn.stop = choice.finish_reason ?? turn.stop;
    for (const { index, id, function: called } of delta.tool_calls ?? []) {
      calls[index] ??= { id, type: "function", function: { name: called.name, arguments: "" } };
      calls[index].function.arguments += called.arguments ?? "";
    }
  }
}

await harness.main({
  name: "openai chat",
  dialect: "openai_chat",
  model: "gpt-5.2",
  start: (model) => new Conversation(model),
  stops: ["tool_calls", "stop"],
  returnsSignatures: false,
});
