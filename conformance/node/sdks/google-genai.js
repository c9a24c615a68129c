// `@google/genai` over upstreams of other dialects. The history is the one that its
// chat keeps.

import { GoogleGenAI } from "@google/genai";

import * as harness from "../harness.js";

class Conversation {
  constructor(model) {
    const sdk = new GoogleGenAI({
      apiKey: "conformance",
      httpOptions: { baseUrl: harness.GATEWAY, timeout: harness.TIMEOUT_MS },
    });
    this.chat = sdk.chats.create({
      model,
      config: {
        thinkingConfig: { includeThoughts: true, thinkingLevel: "HIGH" },
        tools: [
          {
            functionDeclarations: [
              {
                name: harness.TOOL,
                description: harness.TOOL_DESCRIPTION,
                parametersJsonSchema: harness.TOOL_SCHEMA,
              },
            ],
          },
        ],
      },
    });
  }

  say(text) {
    return this.ask(text);
  }

  answer(results) {
    return this.ask(
      results.map(([{ id, name }, result]) => ({
        functionResponse: { id, name, response: { output: result } },
      })),
    );
  }

  async ask(message) {
    const turn = harness.emptyTurn();
    for await (const chunk of await this.chat.sendMessageStream({ message })) {
      turn.model = chunk.modelVersion ?? turn.model;
      turn.inputTokens = chunk.usageMetadata?.promptTokenCount ?? turn.inputTokens;
      turn.outputTokens = chunk.usageMetadata?.candidatesTokenCount ?? turn.outputTokens;
      for (const candidate of chunk.candidates ?? []) {
        turn.stop = candidate.finishReason ?? turn.stop;
        candidate.content?.parts?.forEach((part) => add(turn, part));
      }
    }
    return turn;
  }
}

function add(turn, part) {
  if (part.thoughtSignature) turn.signatures.push(part.thoughtSignature);
  if (part.functionCall) {
    const { id, name, args } = part.functionCall;
    turn.calls.push({ id, name, arguments: args });
  } else if (part.thought) {
    turn.reasoning += part.text ?? "";
  } else {
    turn.text += part.text ?? "";
  }
}

await harness.main({
  name: "@google/genai",
  dialect: "gemini",
  model: "gemini-3-pro",
  start: (model) => new Conversation(model),
  stops: ["STOP", "STOP"],
  returnsSignatures: true,
});
