// Every client of this folder over `@copilotkit/aimock`, an upstream that is not part of this project. It
// serves five dialects on one port and answers with what the fixtures below say. It is not strict,
// and its Responses have no sequence numbers and few members.
//
// This script starts its own gateway, because only the running mock has an address.

import { readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { LLMock } from "@copilotkit/aimock";

import { startGateway } from "../processes.js";

const RESULT = "17 degrees and a light wind";
const ANSWER = `It is ${RESULT}.`;

// Chat completions, and dialects whose reasoning arrives with a signature or needs none.
const THINKS = "mock-thinks";
// Clients of Responses refuse reasoning that is not encrypted, and the mock encrypts none.
const SPEAKS = "mock-speaks";
const BACKENDS = [
  { name: "anthropic", dialect: "anthropic", model: THINKS },
  { name: "chat", dialect: "openai_chat", variant: "compatible", model: THINKS },
  { name: "gemini", dialect: "gemini", model: THINKS },
  // The mock sends reasoning in a member that Ollama does not have.
  { name: "ollama", dialect: "ollama", model: SPEAKS },
  { name: "responses", dialect: "openai_responses", model: SPEAKS },
];

// Cells that fail because of the mock, with the words of the failure.
const EXPECTED_FAILURES = {
  // The mock signs no call, and equal dialects pass that on.
  "ai with @ai-sdk/google over aimock's gemini": /without a `thoughtSignature`/,
};

async function startMock() {
  const mock = new LLMock({ port: 0, logLevel: "silent" });
  const calls = [{ name: "get_weather", arguments: JSON.stringify({ city: "Paris" }) }];
  for (const model of [THINKS, SPEAKS]) {
    const more = (reasoning) => (model === THINKS ? { reasoning } : {});
    mock.on({ model, hasToolResult: true }, { content: ANSWER, ...more("That settles it.") });
    mock.on(
      { model, userMessage: /tool/i },
      { content: "I look.", toolCalls: calls, ...more("I need the weather.") },
    );
    mock.on({ model }, { content: "Just a text.", ...more("A greeting.") });
  }
  await mock.start();
  return mock;
}

function configuration(url) {
  const backend = ({ name, dialect, variant, model }) =>
    [
      "[[backend]]",
      `name = "${name}"`,
      `dialect = "${dialect}"`,
      ...(variant ? [`variant = "${variant}"`] : []),
      `base_url = "${url}"`,
      `api_key = "conformance"`,
      `models = { "*" = "${model}" }`,
    ].join("\n");
  return BACKENDS.map(backend).join("\n\n");
}

/** A text, and a tool loop. */
async function cell(harness, sdk, backend, gateway) {
  const { check } = harness;
  await fetch(`http://${gateway}/admin/switch`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ backend: backend.name }),
  });
  const shown = JSON.stringify;
  const checkTurn = (turn, where, calls) => {
    const stop = calls > 0 ? sdk.stops[0] : sdk.stops[1];
    // The mock ends a call with a reason that Gemini does not have, and equal dialects pass it on.
    const own = sdk.dialect === "gemini" && backend.dialect === "gemini" && calls > 0;
    check(own || turn.stop === stop, `${where}: the stop reason is ${shown(turn.stop)}, not ${shown(stop)}`);
    check(turn.model === sdk.model, `${where}: the reply names the model ${shown(turn.model)}`);
    check(turn.calls.length === calls, `${where}: calls: ${shown(turn.calls)}`);
    if (backend.model === THINKS) check(turn.reasoning, `${where}: there is no reasoning`);
  };
  let turn = await sdk.start(sdk.model).say("Hello");
  checkTurn(turn, "a text", 0);
  check(turn.text === "Just a text.", `a text: ${shown(turn.text)}`);
  const conversation = sdk.start(sdk.model);
  turn = await conversation.say("Use a tool: what is the weather like?");
  checkTurn(turn, "a call", 1);
  check(turn.text === "I look.", `a call: ${shown(turn.text)}`);
  const [call] = turn.calls;
  check(call.name === harness.TOOL && call.id, `a call: ${shown(call)}`);
  check(call.arguments?.city === "Paris", `a call: ${shown(call.arguments)}`);
  turn = await conversation.answer([[call, RESULT]]);
  checkTurn(turn, "the answer", 0);
  check(turn.text === ANSWER, `the answer: ${shown(turn.text)}`);
}

/** Runs a cell that may have to fail. */
async function expected(name, work) {
  const words = EXPECTED_FAILURES[name];
  if (!words) return work();
  const failure = await work().then(
    () => null,
    (error) => error,
  );
  if (!failure) throw new Error("the cell works now; remove it from EXPECTED_FAILURES");
  if (!words.test(String(failure.message))) throw failure;
}

const here = dirname(fileURLToPath(import.meta.url));
const mock = await startMock();
const address = await startGateway(configuration(mock.url));
// The scripts read it when they are imported.
process.env.THROUGHLINE_URL = `http://${address}`;
const harness = await import("../harness.js");
const sdks = harness.collect();
// A script with such a line describes a client.
const describes = (script) => readFileSync(join(here, script), "utf8").includes("\nawait harness.main(");
for (const script of readdirSync(here).sort()) {
  if (script.endsWith(".js") && describes(script)) await import(`./${script}`);
}
await harness.run(
  sdks.flatMap((sdk) =>
    BACKENDS.map((backend) => {
      const name = `${sdk.name} over aimock's ${backend.name}`;
      return [name, () => expected(name, () => cell(harness, sdk, backend, address))];
    }),
  ),
);
