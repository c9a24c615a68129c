// A conversation by the `ai` package, the same for each of its providers. What
// a provider needs besides is in its own file.

import { jsonSchema, streamText, tool } from "ai";

import * as harness from "./harness.js";

export class Conversation {
  messages = [];

  /** `seal` finds the opaque value in a part's `providerMetadata`, if it has one. */
  constructor({ model, providerOptions, seal }) {
    this.model = model;
    this.providerOptions = providerOptions;
    this.seal = seal;
  }

  say(text) {
    return this.ask({ role: "user", content: text });
  }

  answer(results) {
    return this.ask({
      role: "tool",
      content: results.map(([call, result]) => ({
        type: "tool-result",
        toolCallId: call.id,
        toolName: call.name,
        output: { type: "text", value: result },
      })),
    });
  }

  async ask(message) {
    this.messages.push(message);
    // Printed to the user's terminal unless somebody takes them: something looked wrong to the package.
    const warnings = [];
    globalThis.AI_SDK_LOG_WARNINGS = (event) => warnings.push(...event.warnings);
    const result = streamText({
      model: this.model,
      providerOptions: this.providerOptions,
      // A retry would hide a failed request.
      maxRetries: 0,
      abortSignal: AbortSignal.timeout(harness.PATIENCE),
      // Without `execute` the loop is ours, one request a turn.
      tools: {
        [harness.TOOL]: tool({
          description: harness.TOOL_ABOUT,
          inputSchema: jsonSchema(harness.TOOL_SCHEMA),
        }),
      },
      messages: this.messages,
      // The package prints errors of a stream unless somebody takes them.
      onError: () => {},
    });
    const turn = harness.emptyTurn();
    const note = (part) => {
      const seal = part.providerMetadata && this.seal(part.providerMetadata);
      if (seal) turn.seals.push(seal);
    };
    for await (const part of result.fullStream) {
      if (part.type === "error") throw part.error;
      note(part);
    }
    harness.check(warnings.length === 0, `the package warns: ${JSON.stringify(warnings)}`);
    turn.reasoning = (await result.reasoningText) ?? "";
    turn.text = await result.text;
    turn.calls = (await result.toolCalls).map((call) => ({
      id: call.toolCallId,
      name: call.toolName,
      arguments: call.input,
    }));
    turn.stop = await result.finishReason;
    const usage = await result.usage;
    turn.inputTokens = usage.inputTokens ?? 0;
    turn.outputTokens = usage.outputTokens ?? 0;
    const response = await result.response;
    turn.model = response.modelId;
    this.messages.push(...response.messages);
    return turn;
  }
}

/** The description of an SDK for the harness, for a provider of this package. */
export function sdk({ name, dialect, model, sealed = true, conversation }) {
  return {
    name: `ai with ${name}`,
    dialect,
    model,
    start: (asked) => new Conversation(conversation(asked)),
    stops: ["tool-calls", "stop"],
    sealed,
  };
}
