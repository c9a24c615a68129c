// `ai` with `@ai-sdk/openai` (responses, without state) over upstreams of other dialects.

import { createOpenAI } from "@ai-sdk/openai";

import { sdk } from "../ai-conversation.js";
import * as harness from "../harness.js";

const provider = createOpenAI({ baseURL: `${harness.GATEWAY}/v1`, apiKey: "conformance" });

await harness.main(
  sdk({
    name: "@ai-sdk/openai",
    dialect: "openai_responses",
    model: "gpt-5.2",
    conversation: (model) => ({
      model: provider.responses(model),
      providerOptions: {
        openai: {
          reasoningEffort: "medium",
          reasoningSummary: "auto",
          include: ["reasoning.encrypted_content"],
          store: false,
        },
      },
      signature: ({ openai }) => openai?.reasoningEncryptedContent,
    }),
  }),
);
