// A conversation with the `ai` package. Each of its providers has its own file for
// what differs.

import { jsonSchema, streamText, tool } from "ai";

import * as harness from "./harness.js";

export class Conversation {
  messages = [];

  /** `signature` reads the signature from a part's `providerMetadata`, if it has one. */
  constructor({ model, providerOptions, signature }) {
    this.model = model;
    this.providerOptions = providerOptions;
    this.signature = signature;
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
    // The package would print its warnings; here they fail the turn.
    const warnings = [];
    globalThis.AI_SDK_LOG_WARNINGS = (event) => warnings.push(...event.warnings);
    const result = streamText({
      model: this.model,
      providerOptions: this.providerOptions,
      // A retry would hide a failed request.
      maxRetries: 0,
      abortSignal: AbortSignal.timeout(harness.TIMEOUT_MS),
      // Without `execute` the package sends one request per turn, and we run the tool loop.
      tools: {
        [harness.TOOL]: tool({
          description: harness.TOOL_DESCRIPTION,
          inputSchema: jsonSchema(harness.TOOL_SCHEMA),
        }),
      },
      messages: this.messages,
      // The package would print the errors of a stream; the loop below throws them.
      onError: () => {},
    });
    const turn = harness.emptyTurn();
    for await (const part of result.fullStream) {
      if (part.type === "error") throw part.error;
      const signature = part.providerMetadata && this.signature(part.providerMetadata);
      if (signature) turn.signatures.push(signature);
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
export function sdk({ name, dialect, model, returnsSignatures = true, conversation }) {
  return {
    name: `ai with ${name}`,
    dialect,
    model,
    start: (name) => new Conversation(conversation(name)),
    stops: ["tool-calls", "stop"],
    returnsSignatures,
  };
}
