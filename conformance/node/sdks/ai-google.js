// `ai` with `@ai-sdk/google` over upstreams of other dialects.

import { createGoogleGenerativeAI } from "@ai-sdk/google";

import { sdk } from "../ai-conversation.js";
import * as harness from "../harness.js";

const provider = createGoogleGenerativeAI({
  baseURL: `${harness.GATEWAY}/v1beta`,
  apiKey: "conformance",
});

await harness.main(
  sdk({
    name: "@ai-sdk/google",
    dialect: "gemini",
    model: "gemini-3-pro",
    conversation: (model) => ({
      model: provider(model),
      providerOptions: {
        google: { thinkingConfig: { includeThoughts: true, thinkingLevel: "high" } },
      },
      signature: ({ google }) => google?.thoughtSignature,
    }),
  }),
);
