// The chat behind `useChat`, of `ai` 7, 6 and 5, behind a proxy that cuts every connection after two
// seconds. Ten runs at once. Version 7 resumes in the chat whose connection broke; in older ones a
// page does so when it is opened again (`useChat({ resume: true })`). The messages must be those of a
// reader whose connection is not cut.

import { isDeepStrictEqual } from "node:util";

import * as ai7 from "ai";
import * as ai5 from "ai5";
import * as ai6 from "ai6";

import * as harness from "../harness.js";
import { MIN_CUTS, READER, reply, RUNS, startSlowRuns, TIMEOUT_MS } from "../slow-runs.js";

const { check } = harness;
const { direct, cut, cuts } = await startSlowRuns({ clean: false });

const MAJORS = [
  [7, ai7],
  [6, ai6],
  [5, ai5],
];

/** What a page keeps, without a page. */
class State {
  status = "ready";
  error = undefined;

  constructor(messages) {
    this.messages = messages;
  }

  pushMessage = (message) => void this.messages.push(message);
  popMessage = () => void this.messages.pop();
  replaceMessage = (index, message) => void (this.messages[index] = this.snapshot(message));
  snapshot = (value) => structuredClone(value);
}

/** A chat as `useChat` makes it. */
function openChat(ai, id, messages, transport) {
  class Chat extends ai.AbstractChat {}
  return new Chat({ id, transport, state: new State(structuredClone(messages)) });
}

/** A transport behind the proxy. It remembers the run, for the case that it ends between two connections. */
function transportBehindProxy(ai, reader) {
  const transport = new ai.DefaultChatTransport({
    api: `${cut}/ui/chat`,
    headers: { [READER]: reader },
    body: {
      model: "claude-opus-5",
      reasoning_effort: "medium",
      tools: {
        [harness.TOOL]: {
          description: harness.TOOL_DESCRIPTION,
          inputSchema: ai.jsonSchema(harness.TOOL_SCHEMA),
        },
      },
    },
    fetch: async (url, init) => {
      const answer = await fetch(url, init);
      transport.run = answer.headers.get("x-throughline-run") ?? transport.run;
      if (answer.status !== 204) return answer;
      return fetch(`${cut}/runs/${transport.run}/events`, init);
    },
  });
  return transport;
}

/** The messages of a page that reads the run over a connection that is not cut. */
async function uncutMessages(ai, id, questions, run) {
  const transport = new ai.DefaultChatTransport({
    prepareReconnectToStreamRequest: () => ({ api: `${direct}/runs/${run}/events` }),
  });
  const chat = openChat(ai, id, questions, transport);
  await chat.resumeStream();
  check(chat.status === "ready", `the uncut reader failed: ${chat.error?.message}`);
  return chat.messages;
}

async function oneRun(number, major, ai) {
  const reader = `reader ${number}`;
  const id = `chat-${number}`;
  const transport = transportBehindProxy(ai, reader);
  let chat = openChat(ai, id, [], transport);
  const began = performance.now();
  await chat.sendMessage({ text: reply(number).question });
  const questions = chat.messages.slice(0, 1);
  while (chat.status === "error") {
    const isCut = chat.error instanceof TypeError && performance.now() - began < TIMEOUT_MS;
    check(isCut, `run ${number} failed: ${chat.error?.message}`);
    if (major < 7) chat = openChat(ai, id, questions, transport);
    await chat.resumeStream();
  }
  const time = (performance.now() - began) / 1000;
  checkMessages(number, chat.messages);
  const uncut = await uncutMessages(ai, id, questions, transport.run);
  check(
    isDeepStrictEqual(chat.messages, uncut),
    `run ${number}: the messages are ${shown(chat.messages)}, uncut ${shown(uncut)}`,
  );
  check(cuts(reader) >= MIN_CUTS, `only ${cuts(reader)} connections of run ${number} were cut`);
  return `\`ai\` ${major}: ${time.toFixed(1)} s with ${cuts(reader)} cuts`;
}

const shown = (value) => JSON.stringify(value);

function checkMessages(number, messages) {
  const { thinking, text, tool } = reply(number);
  const roles = messages.map(({ role }) => role).join();
  check(roles === "user,assistant", `run ${number}: the messages are of ${roles}`);
  const parts = messages[1].parts.filter(({ type }) => type !== "step-start");
  const types = parts.map(({ type }) => type).join();
  check(types === `reasoning,text,tool-${tool.name}`, `run ${number}: the parts are ${types}`);
  const [reasoning, answer, call] = parts;
  check(reasoning.text === thinking, `run ${number}: the reasoning is ${reasoning.text}`);
  const { signature } = reasoning.providerMetadata?.throughline ?? {};
  check(signature, `run ${number}: the reasoning has no signature`);
  check(answer.text === text, `run ${number}: the text is ${answer.text}`);
  check(isDeepStrictEqual(call.input, tool.input), `run ${number}: the call is ${shown(call)}`);
}

await harness.run([
  [
    `ai: ${RUNS} runs behind a proxy that cuts every connection`,
    async () => {
      const all = await Promise.all(
        Array.from({ length: RUNS }, (_, number) =>
          oneRun(number, ...MAJORS[number % MAJORS.length]),
        ),
      );
      console.log(`        ${all.join(", ")}`);
    },
  ],
]);
