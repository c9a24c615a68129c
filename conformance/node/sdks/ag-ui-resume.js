// `@ag-ui/client` behind a proxy that cuts every connection after two seconds, with the `fetch` of
// docs/front-ends. Ten runs at once, and an agent that follows a thread over two runs. The messages
// must be those of a reader whose connection is not cut, and a warning of the library's checks fails.

import { isDeepStrictEqual } from "node:util";

import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";

import * as harness from "../harness.js";
import { locate } from "../readme.js";
import { MIN_CUTS, READER, reply, RUNS, startSlowRuns, TIMEOUT_MS } from "../slow-runs.js";

const { check } = harness;
const { resumingFetch } = await import(locate("docs/front-ends/resuming-fetch.mjs"));
const { direct, cut, cuts } = await startSlowRuns({ clean: true });

const warnings = [];
for (const level of ["warn", "error"]) {
  console[level] = (...values) => warnings.push(values.map(String).join(" "));
}

const TOOLS = [
  {
    name: harness.TOOL,
    description: harness.TOOL_DESCRIPTION,
    parameters: harness.TOOL_SCHEMA,
  },
];

/** An agent that also reads the streams at `path`, as `connectAgent` does. */
class Reader extends HttpAgent {
  constructor(config, path) {
    super(config);
    this.path = path;
  }

  connect() {
    const address = `${this.url}/${this.threadId}${this.path}`;
    const signal = this.abortController.signal;
    const headers = { ...this.headers, accept: "text/event-stream" };
    return transformHttpEventStream(
      runHttpRequest(() => this.fetch(address, { method: "GET", headers, signal })),
    );
  }
}

/** The settings of an agent behind the proxy. */
function behindProxy(threadId, reader) {
  const headers = { [READER]: reader };
  return { url: `${cut}/ag-ui`, threadId, headers, fetch: resumingFetch };
}

/** An agent behind the proxy with the question of this number. */
function asker(number, threadId) {
  const agent = new HttpAgent(behindProxy(threadId, `asker ${number}`));
  agent.messages = [question(number)];
  return agent;
}

function question(number) {
  return { id: `question-${number}`, role: "user", content: reply(number).question };
}

async function run(agent, runId) {
  const failures = [];
  const began = performance.now();
  const abortController = new AbortController();
  const timer = setTimeout(() => abortController.abort(), TIMEOUT_MS);
  const forwardedProps = { model: "claude-opus-5", reasoning_effort: "medium" };
  await agent.runAgent(
    { runId, tools: TOOLS, forwardedProps, abortController },
    {
      onRunFailed: ({ error }) => void failures.push(error.message),
      onRunErrorEvent: ({ event }) => void failures.push(event.message),
    },
  );
  clearTimeout(timer);
  check(failures.length === 0, `the run failed: ${failures.join("; ")}`);
  return (performance.now() - began) / 1000;
}

/** Reads a run from its first event over a connection that is not cut; returns the messages. */
async function uncutMessages(agent, runId) {
  const { threadId } = agent;
  const reader = new Reader({ url: `${direct}/ag-ui`, threadId }, `/runs/${runId}`);
  reader.messages = agent.messages.filter((message) => message.role === "user");
  await reader.connectAgent();
  return reader.messages;
}

function checkMessages(number, messages, uncut) {
  const where = `run ${number}`;
  const { thinking, text, tool } = reply(number);
  const [, reasoning, answer] = messages;
  check(reasoning?.role === "reasoning", `${where}: there is no reasoning message`);
  check(reasoning.content === thinking, `${where}: the reasoning is ${reasoning.content}`);
  check(reasoning.encryptedValue, `${where}: the reasoning has no encrypted value`);
  check(answer?.content === text, `${where}: the text is ${answer?.content}`);
  const [call] = answer.toolCalls ?? [];
  const input = JSON.parse(call?.function.arguments ?? "null");
  check(isDeepStrictEqual(input, tool.input), `${where}: the call is ${JSON.stringify(call)}`);
  check(messages.length === 3, `${where}: there are ${messages.length} messages`);
  check(
    isDeepStrictEqual(messages, uncut),
    `${where}: the messages are ${JSON.stringify(messages)}, uncut ${JSON.stringify(uncut)}`,
  );
}

function checkWarnings() {
  const printed = warnings.splice(0);
  check(printed.length === 0, `the library warns: ${printed.join("; ")}`);
}

function checkCuts(reader) {
  check(cuts(reader) >= MIN_CUTS, `only ${cuts(reader)} connections of ${reader} were cut`);
  return cuts(reader);
}

async function runsAtOnce() {
  const all = await Promise.all(
    Array.from({ length: RUNS }, async (_, number) => {
      const agent = asker(number, `thread-${number}`);
      const time = await run(agent, `run-${number}`);
      checkMessages(number, agent.messages, await uncutMessages(agent, `run-${number}`));
      return `${time.toFixed(1)} s with ${checkCuts(`asker ${number}`)} cuts`;
    }),
  );
  console.log(`        ${all.join(", ")}`);
  checkWarnings();
}

/** A second reader of the thread stays attached over two runs, and gets what both made. */
async function following() {
  const threadId = "followed";
  const follower = new Reader(behindProxy(threadId, "follower"), "?follow=true");
  follower.messages = [question(RUNS)];
  const finished = [];
  let seen;
  const both = new Promise((resolve) => (seen = resolve));
  const followed = follower.connectAgent(
    {},
    {
      onRunFinishedEvent: ({ event }) => {
        finished.push(event.runId);
        if (finished.length === 2) seen();
      },
    },
  );
  const agent = asker(RUNS, threadId);
  await run(agent, "first");
  const call = agent.messages.at(-1).toolCalls[0];
  const result = { id: "result", role: "tool", toolCallId: call.id, content: "17 degrees" };
  const next = [result, question(RUNS + 1)];
  agent.messages.push(...next);
  await run(agent, "second");
  // If the follower fails, its promise ends first.
  await Promise.race([both, followed]);
  await follower.detachActiveRun();
  await followed;
  check(finished.join() === "first,second", `the follower saw the runs ${finished}`);
  checkCuts("follower");
  // The follower does not see what the asker says.
  const said = (messages) => messages.filter(({ role }) => !["user", "tool"].includes(role));
  check(
    isDeepStrictEqual(said(follower.messages), said(agent.messages)),
    `the follower has ${JSON.stringify(follower.messages)}, the asker ${JSON.stringify(agent.messages)}`,
  );
  checkWarnings();
}

await harness.run([
  [`ag-ui: ${RUNS} runs behind a proxy that cuts every connection`, runsAtOnce],
  ["ag-ui: a thread is followed over two runs behind that proxy", following],
]);
