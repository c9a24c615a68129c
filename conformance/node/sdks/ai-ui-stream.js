// The UI message stream of `useChat`, with the transport and the reader of `ai` 7, 6
// and 5. Each version runs a conversation, and all three read every reply. They must
// agree: a chunk that one of them does not know ends the whole message there.

import { isDeepStrictEqual } from "node:util";

import * as ai7 from "ai";
import * as ai5 from "ai5";
import * as ai6 from "ai6";

import * as harness from "../harness.js";

const MAJORS = { 7: ai7, 6: ai6, 5: ai5 };

class Conversation {
  messages = [];
  questions = 0;

  constructor(major, model) {
    this.major = major;
    this.body = {
      model,
      reasoning_effort: "medium",
      // An object by tool name, as in the package itself.
      tools: {
        [harness.TOOL]: {
          description: harness.TOOL_DESCRIPTION,
          inputSchema: ai7.jsonSchema(harness.TOOL_SCHEMA),
        },
      },
    };
    this.id = `chat-${Math.random().toString(36).slice(2)}`;
  }

  say(text) {
    this.questions += 1;
    this.messages.push({
      id: `question-${this.questions}`,
      role: "user",
      parts: [{ type: "text", text }],
    });
    return this.ask();
  }

  /** Writes the output into the part of the call, as `addToolOutput` does. */
  answer(results) {
    const { parts } = this.messages.at(-1);
    for (const [call, result] of results) {
      const part = parts.find((part) => part.toolCallId === call.id);
      Object.assign(part, { state: "output-available", output: result });
    }
    return this.ask();
  }

  async ask() {
    const last = this.messages.at(-1);
    // A reply to tool results continues the message that contains them.
    const continued = last.role === "assistant" ? last : undefined;
    let bytes;
    const transport = this.transport(this.major, async (url, options) => {
      const reply = await fetch(url, options);
      checkHeaders(reply);
      bytes = await reply.text();
      return new Response(bytes, reply);
    });
    const read = await this.read(this.major, transport, continued);
    for (const major of Object.keys(MAJORS).map(Number)) {
      const again = this.transport(major, async () => new Response(bytes));
      const other = await this.read(major, again, continued);
      harness.check(
        isDeepStrictEqual(comparable(other.message), comparable(read.message)),
        `\`ai\` ${major} reads ${shown(other.message)}, ${this.major} reads ${shown(read.message)}`,
      );
    }
    if (continued) this.messages.pop();
    this.messages.push(read.message);
    harness.check(
      !continued || read.message.id === continued.id,
      `a message changed its id: ${continued?.id} became ${read.message.id}`,
    );
    const before = continued ? continued.parts.length : 0;
    return turnOf(read, before);
  }

  transport(major, fetch) {
    return new MAJORS[major].DefaultChatTransport({
      api: `${harness.GATEWAY}/ui/chat`,
      body: this.body,
      fetch,
    });
  }

  async read(major, transport, continued) {
    const stream = await transport.sendMessages({
      chatId: this.id,
      messages: this.messages,
      trigger: "submit-message",
      abortSignal: AbortSignal.timeout(harness.TIMEOUT_MS),
    });
    const [parsed, seen] = stream.tee();
    let message;
    let failure;
    const states = MAJORS[major].readUIMessageStream({
      message: continued && structuredClone(continued),
      stream: parsed,
      terminateOnError: true,
      onError: (error) => (failure = error),
    });
    for await (const state of states) message = state;
    if (failure) throw failure;
    const chunks = [];
    for await (const chunk of seen) chunks.push(chunk);
    return { message, chunks };
  }
}

function checkHeaders(reply) {
  harness.check(reply.ok, `the status is ${reply.status}`);
  for (const [name, value] of [
    ["x-vercel-ai-ui-message-stream", "v1"],
    ["cache-control", "no-cache"],
    ["x-accel-buffering", "no"],
  ]) {
    const found = reply.headers.get(name);
    harness.check(found === value, `the header ${name} is ${found}`);
  }
  const kind = reply.headers.get("content-type");
  harness.check(kind?.startsWith("text/event-stream"), `the content type is ${kind}`);
}

const shown = (value) => JSON.stringify(value);

/** The message without what only newer versions keep: the ids of parts and undefined members. */
function comparable(message) {
  const copy = JSON.parse(JSON.stringify(message));
  for (const part of copy.parts) {
    if (part.type === "reasoning" || part.type === "text") delete part.id;
  }
  return copy;
}

function turnOf({ message, chunks }, before) {
  const turn = harness.emptyTurn();
  for (const part of message.parts.slice(before)) {
    if (part.type === "reasoning") {
      turn.reasoning += part.text;
      const { signature, redacted } = part.providerMetadata?.throughline ?? {};
      harness.check(signature || redacted, `the reasoning has no signature: ${shown(part)}`);
      turn.signatures.push(signature ?? redacted);
    } else if (part.type === "text") {
      harness.check(part.state === "done", `a text is not done: ${shown(part)}`);
      turn.text += part.text;
    } else if (part.type === `tool-${harness.TOOL}`) {
      harness.check(part.state === "input-available", `the state of a call is ${part.state}`);
      turn.calls.push({ id: part.toolCallId, name: harness.TOOL, arguments: part.input });
    } else {
      harness.check(part.type === "step-start", `unexpected part of type ${part.type}`);
    }
  }
  turn.stop = chunks.find((chunk) => chunk.type === "finish")?.finishReason;
  turn.model = message.metadata?.model;
  turn.inputTokens = message.metadata?.usage?.inputTokens ?? 0;
  turn.outputTokens = message.metadata?.usage?.outputTokens ?? 0;
  return turn;
}

await harness.main(
  ...[7, 6, 5].map((major) => ({
    name: `ai ${major} with its UI stream`,
    dialect: "ui_stream",
    model: "gpt-of-the-front-end",
    start: (model) => new Conversation(major, model),
    stops: ["tool-calls", "stop"],
    returnsSignatures: true,
  })),
);
