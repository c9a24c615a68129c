// `openai`'s responses over upstreams of other dialects, without state.

import OpenAI from "openai";

import * as harness from "../harness.js";

class Conversation {
  items = [];
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
        type: "function_call_output",
        call_id: call.id,
        output: result,
      })),
    );
  }

  async ask(...items) {
    this.items.push(...items);
    // The helper checks every event against the earlier ones.
    const stream = this.sdk.responses.stream({
      model: this.model,
      reasoning: { effort: "medium", summary: "auto" },
      include: ["reasoning.encrypted_content"],
      store: false,
      tools: [
        {
          type: "function",
          name: harness.TOOL,
          description: harness.TOOL_DESCRIPTION,
          parameters: harness.TOOL_SCHEMA,
          strict: false,
        },
      ],
      input: this.items,
    });
    const response = await stream.finalResponse();
    for (const { parsed_arguments: _, ...output } of response.output) {
      // The helper adds its parsed values, which are not members of the dialect.
      output.content?.forEach((part) => delete part.parsed);
      this.items.push(output);
    }
    return turnOf(response);
  }
}

function turnOf(response) {
  const turn = harness.emptyTurn();
  turn.stop = response.status;
  turn.inputTokens = response.usage.input_tokens;
  turn.outputTokens = response.usage.output_tokens;
  turn.text = response.output_text;
  turn.model = response.model;
  for (const item of response.output) {
    if (item.type === "reasoning") {
      turn.reasoning += item.summary.map((part) => part.text).join("");
      harness.check(item.encrypted_content, "a reasoning item is not encrypted");
      turn.signatures.push(item.encrypted_content);
    } else if (item.type === "function_call") {
      turn.calls.push({
        id: item.call_id,
        name: item.name,
        arguments: JSON.parse(item.arguments),
      });
    }
  }
  return turn;
}

await harness.main({
  name: "openai responses",
  dialect: "openai_responses",
  model: "gpt-5.2",
  start: (model) => new Conversation(model),
  // A response that calls tools is complete like any other.
  stops: ["completed", "completed"],
  returnsSignatures: true,
});
