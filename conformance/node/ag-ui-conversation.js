// A conversation of an `HttpAgent` of `@ag-ui/client`, whichever version it is: the agent keeps the
// messages, and sends back what it made of the events.

import * as harness from "./harness.js";

const TOOL = {
  name: harness.TOOL,
  description: harness.TOOL_ABOUT,
  parameters: harness.TOOL_SCHEMA,
};

// The library warns of everything it would rather not have seen.
const complaints = [];
for (const level of ["warn", "error"]) {
  console[level] = (...words) => complaints.push(words.map(String).join(" "));
}

export class Conversation {
  #said = 0;
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
    // An older one converts the old events, which is what they are sent for.
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
      this.#said += 1;
      this.agent.messages.push({ id: `said-${this.#said}`, ...message });
    }
    const known = seals(this.agent.messages);
    const turn = harness.emptyTurn();
    const stopped = new AbortController();
    const clock = setTimeout(() => stopped.abort(), harness.PATIENCE);
    const failures = [];
    try {
      await this.agent.runAgent(
        {
          tools: [this.tool],
          context: [],
          forwardedProps: { model: this.model, reasoning_effort: "medium" },
          abortController: stopped,
          ...more,
        },
        {
          onEvent: ({ event }) => add(turn, event),
          onRunFailed: ({ error }) => void failures.push(error.message),
          onRunErrorEvent: ({ event }) => void failures.push(event.message),
        },
      );
    } finally {
      clearTimeout(clock);
    }
    harness.check(failures.length === 0, `the run failed: ${failures.join("; ")}`);
    const told = complaints.splice(0);
    harness.check(told.length === 0, `the library complains: ${told.join("; ")}`);
    // All that came sealed goes back, as it came.
    for (const seal of known) {
      harness.check(seals(this.sent.messages).includes(seal), "a sealed value was not sent back");
    }
    turn.seals = seals(this.agent.messages).filter((seal) => !known.includes(seal));
    // Clients of before 1.0 are not told which model it was.
    if (!this.modern) turn.model = this.model;
    return turn;
  }
}

function seals(messages) {
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

/** What the harness has to know of a version. */
export function sdk(name, HttpAgent, { modern }) {
  return {
    name,
    dialect: "ag_ui",
    model: "gpt-5.2",
    start: (model) => new Conversation(HttpAgent, model, { modern }),
    stops: ["tool_calls", "stop"],
    sealed: modern,
    counts: modern,
  };
}
