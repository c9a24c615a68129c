// A conversation with an `HttpAgent` of any version of `@ag-ui/client`. The agent builds messages
// from the events, keeps them and sends them back.

import * as harness from "./harness.js";

const TOOL = {
  name: harness.TOOL,
  description: harness.TOOL_DESCRIPTION,
  parameters: harness.TOOL_SCHEMA,
};

// The library prints a warning for everything that it finds wrong.
const warnings = [];
for (const level of ["warn", "error"]) {
  console[level] = (...values) => warnings.push(values.map(String).join(" "));
}

export class Conversation {
  #messages = 0;
  // The body of the last request.
  sent;

  constructor(HttpAgent, model, { modern, tool = TOOL }) {
    const conversation = this;
    class Agent extends HttpAgent {
      requestInit(input) {
        const init = super.requestInit(input);
        conversation.sent = JSON.parse(init.body);
        return init;
      }
    }
    // Versions before 1.0 convert the events of older versions, which the gateway sends them.
    if (!modern) process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "true";
    this.model = model;
    this.modern = modern;
    this.tool = tool;
    this.agent = new Agent({ url: `${harness.GATEWAY}/ag-ui` });
  }

  say(text) {
    return this.ask([{ role: "user", content: text }]);
  }

  answer(results) {
    return this.ask(
      results.map(([call, result]) => ({ role: "tool", toolCallId: call.id, content: result })),
    );
  }

  async ask(messages, more = {}) {
    for (const message of messages) {
      this.#messages += 1;
      this.agent.messages.push({ id: `client-${this.#messages}`, ...message });
    }
    const known = encryptedValues(this.agent.messages);
    const turn = harness.emptyTurn();
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), harness.TIMEOUT_MS);
    const failures = [];
    try {
      await this.agent.runAgent(
        {
          tools: [this.tool],
          context: [],
          forwardedProps: { model: this.model, reasoning_effort: "medium" },
          abortController: abort,
          ...more,
        },
        {
          onEvent: ({ event }) => add(turn, event),
          onRunFailed: ({ error }) => void failures.push(error.message),
          onRunErrorEvent: ({ event }) => void failures.push(event.message),
        },
      );
    } finally {
      clearTimeout(timer);
    }
    harness.check(failures.length === 0, `the run failed: ${failures.join("; ")}`);
    const printed = warnings.splice(0);
    harness.check(printed.length === 0, `the library warns: ${printed.join("; ")}`);
    // The library must send every encrypted value back, unchanged.
    const sent = encryptedValues(this.sent.messages);
    for (const value of known) {
      harness.check(sent.includes(value), "an encrypted value was not sent back");
    }
    const now = encryptedValues(this.agent.messages);
    turn.signatures = now.filter((value) => !known.includes(value));
    // The events for clients before 1.0 do not name the model.
    if (!this.modern) turn.model = this.model;
    return turn;
  }
}

function encryptedValues(messages) {
  return messages
    .flatMap((message) => [message, ...(message.toolCalls ?? [])])
    .map((part) => part.encryptedValue)
    .filter(Boolean);
}

function add(turn, event) {
  switch (event.type) {
    case "THINKING_TEXT_MESSAGE_CONTENT":
    case "REASONING_MESSAGE_CONTENT":
      turn.reasoning += event.delta;
      break;
    case "TEXT_MESSAGE_CONTENT":
      turn.text += event.delta;
      break;
    case "TOOL_CALL_START":
      turn.calls.push({ id: event.toolCallId, name: event.toolCallName, arguments: "" });
      break;
    case "TOOL_CALL_ARGS":
      turn.calls.find((call) => call.id === event.toolCallId).arguments += event.delta;
      break;
    case "TOOL_CALL_END": {
      const call = turn.calls.find((call) => call.id === event.toolCallId);
      call.arguments = JSON.parse(call.arguments);
      break;
    }
    case "RUN_FINISHED": {
      const [usage] = event.usage ?? [];
      turn.stop = event.result.finishReason;
      turn.model = usage?.model ?? "";
      turn.inputTokens = usage?.inputTokens ?? 0;
      turn.outputTokens = usage?.outputTokens ?? 0;
      turn.outcome = event.outcome;
      break;
    }
  }
}

/** The description of a version for the harness. */
export function sdk(name, HttpAgent, { modern }) {
  return {
    name,
    dialect: "ag_ui",
    model: "gpt-5.2",
    start: (model) => new Conversation(HttpAgent, model, { modern }),
    stops: ["tool_calls", "stop"],
    returnsSignatures: modern,
    reportsUsage: modern,
  };
}
