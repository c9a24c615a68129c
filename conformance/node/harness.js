// The scenarios and checks that are the same for every SDK, as in
// ../python/harness.py. Each SDK has its own file, which knows how the SDK sends a
// request, how it keeps a history and what its types are called.
//
// THROUGHLINE_URL is the gateway's address. The gateway's admin API lists the
// backends and the addresses of their simulators.

export const GATEWAY = (process.env.THROUGHLINE_URL ?? "").replace(/\/$/, "");
// A simulator replies within milliseconds; the rest is for a busy machine.
export const TIMEOUT_MS = 30_000;

export const TOOL = "get_weather";
export const TOOL_DESCRIPTION = "The weather in a city";
export const TOOL_SCHEMA = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
};
const RESULT = "17 degrees and a light wind";
// The gateway sends this for an assistant turn that lost all its content. No turn here does.
const PLACEHOLDER = "[reasoning omitted]";

/**
 * One reply, as the SDK's types show it. `signatures` has the signatures and encrypted contents,
 * which the SDK returns unread.
 */
export function emptyTurn() {
  return {
    reasoning: "",
    text: "",
    calls: [], // { id, name, arguments }
    stop: "",
    inputTokens: 0,
    outputTokens: 0,
    signatures: [],
    model: "",
  };
}

export class CheckFailed extends Error {}

export function check(condition, message) {
  if (!condition) throw new CheckFailed(message);
}

/** Sends a request without an SDK: to the admin API or to a recording. */
export async function http(method, url, body) {
  const reply = await fetch(url, {
    method,
    headers: { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  check(reply.ok, `${method} ${url} answered ${reply.status}`);
  return reply.json();
}

/** A backend of the gateway, with the recording of its simulator. */
class Upstream {
  constructor(entry) {
    this.name = entry.name;
    this.dialect = entry.dialect;
    this.recording = `${entry.base_url.replace(/\/$/, "")}/simulator/requests`;
    this.seen = 0;
  }

  async activate() {
    const answer = await http("POST", `${GATEWAY}/admin/switch`, { backend: this.name });
    check(answer.active === this.name, `the switch answered ${JSON.stringify(answer)}`);
    this.seen = (await http("GET", this.recording)).last;
  }

  /** Returns the bodies since the last call; fails if one of them was refused. */
  async received() {
    const listed = await http("GET", `${this.recording}?after=${this.seen}`);
    this.seen = listed.last;
    const posted = listed.requests.filter((entry) => entry.method === "POST");
    for (const entry of posted) {
      check(
        entry.status === 200,
        `\`${this.name}\` refused with ${entry.status}: ${JSON.stringify(entry.refusal)}`,
      );
    }
    return posted.map((entry) => JSON.parse(Buffer.from(entry.body_base64, "base64")));
  }
}

/** The thinking in a request's history, from the members that each dialect uses. */
const THINKING = {
  anthropic: (body) =>
    body.messages
      .flatMap((message) => (Array.isArray(message.content) ? message.content : []))
      .map((block) => block.signature ?? block.data),
  openai_responses: (body) =>
    body.input
      .filter((item) => item.type === "reasoning")
      .map((item) => item.encrypted_content),
  gemini: (body) =>
    body.contents.flatMap((content) => content.parts).map((part) => part.thoughtSignature),
  ollama: (body) => body.messages.map((message) => message.thinking),
  openai_chat: (body) =>
    body.messages.map(
      (message) =>
        message.reasoning_content ||
        message.reasoning ||
        // Some servers have no member for thinking and keep it as tags in the text.
        JSON.stringify(message.content ?? "").includes("<think>"),
    ),
};

/** Checks what every turn has in common; returns its first call, if there is one. */
function checkTurn(sdk, turn, where, calls) {
  const shown = JSON.stringify;
  check(turn.reasoning.trim(), `${where}: there is no reasoning`);
  check(!turn.text.includes("<think"), `${where}: the text has a tag: ${shown(turn.text)}`);
  check(turn.text.trim(), `${where}: there is no text`);
  const stop = calls > 0 ? sdk.stops[0] : sdk.stops[1];
  check(
    turn.stop === stop,
    `${where}: the stop reason is ${shown(turn.stop)}, not ${shown(stop)}`,
  );
  check(
    sdk.reportsUsage === false || (turn.inputTokens > 0 && turn.outputTokens > 0),
    `${where}: usage is ${turn.inputTokens} in, ${turn.outputTokens} out`,
  );
  if (sdk.returnsSignatures) {
    check(
      turn.signatures.length > 0,
      `${where}: the reasoning has no signature, so it cannot be sent back`,
    );
  }
  check(
    turn.model === sdk.model,
    `${where}: the reply names the model ${shown(turn.model)}, the request ${shown(sdk.model)}`,
  );
  check(
    turn.calls.length === calls,
    `${where}: ${turn.calls.length} tool calls, not ${calls}: ${shown(turn.calls)}`,
  );
  for (const call of turn.calls) {
    check(call.name === TOOL, `${where}: the called tool is ${shown(call.name)}`);
    check(call.id, `${where}: the call has no id`);
    const city = call.arguments?.city;
    check(
      typeof city === "string" && city,
      `${where}: the call's arguments are ${shown(call.arguments)}`,
    );
  }
  const ids = new Set(turn.calls.map((call) => call.id));
  check(ids.size === calls, `${where}: calls share an id: ${shown(turn.calls)}`);
  return turn.calls[0];
}

/** Checks that one request came and was not refused; `thinking`: that it has thinking in it. */
async function checkReceived(upstream, where, { thinking }) {
  const bodies = await upstream.received();
  check(
    bodies.length === 1,
    `${where}: \`${upstream.name}\` got ${bodies.length} requests, not one`,
  );
  check(
    !JSON.stringify(bodies[0]).includes(PLACEHOLDER),
    `${where}: \`${upstream.name}\` got "${PLACEHOLDER}" although no turn is empty`,
  );
  const found = THINKING[upstream.dialect](bodies[0]).filter(Boolean);
  check(
    found.length > 0 || !thinking,
    `${where}: \`${upstream.name}\` did not get its thinking back`,
  );
}

/** The model calls a tool and answers from its result; its thinking is sent back. */
async function toolLoop(sdk, upstream) {
  await upstream.activate();
  const conversation = sdk.start(sdk.model);
  let turn = await conversation.say("Use a tool: what is the weather like?");
  const call = checkTurn(sdk, turn, "first turn", 1);
  await checkReceived(upstream, "first turn", { thinking: false });
  turn = await conversation.answer([[call, RESULT]]);
  checkTurn(sdk, turn, "second turn", 0);
  check(turn.text.includes(RESULT), `second turn: the result is not quoted: ${turn.text}`);
  await checkReceived(upstream, "second turn", { thinking: true });
}

/** Two calls in one turn, and both results in the next. */
async function parallelCalls(sdk, upstream) {
  await upstream.activate();
  const conversation = sdk.start(sdk.model);
  let turn = await conversation.say("Use a tool in parallel, please.");
  checkTurn(sdk, turn, "first turn", 2);
  await checkReceived(upstream, "first turn", { thinking: false });
  const results = ["one", "two"].map((number) => `${RESULT} in ${number}`);
  turn = await conversation.answer(turn.calls.map((call, index) => [call, results[index]]));
  checkTurn(sdk, turn, "second turn", 0);
  for (const result of results) {
    check(turn.text.includes(result), `second turn: "${result}" is not quoted: ${turn.text}`);
  }
  await checkReceived(upstream, "second turn", { thinking: true });
}

/** A switch between a call and its result, a tool loop on the other backend, and back. */
async function switchAndBack(sdk, first, second) {
  await first.activate();
  const conversation = sdk.start(sdk.model);
  let turn = await conversation.say("Use a tool, please.");
  let call = checkTurn(sdk, turn, "before", 1);
  await checkReceived(first, "before", { thinking: false });
  await second.activate();
  turn = await conversation.answer([[call, RESULT]]);
  checkTurn(sdk, turn, "after the switch", 0);
  check(turn.text.includes(RESULT), `after the switch: the result is lost: ${turn.text}`);
  await checkReceived(second, "after the switch", { thinking: false });
  turn = await conversation.say("Use a tool again.");
  call = checkTurn(sdk, turn, "the next loop", 1);
  await checkReceived(second, "the next loop", { thinking: false });
  turn = await conversation.answer([[call, RESULT]]);
  checkTurn(sdk, turn, "the next loop's end", 0);
  await checkReceived(second, "the next loop's end", { thinking: true });
  await first.activate();
  turn = await conversation.say("Use a tool once more.");
  checkTurn(sdk, turn, "back", 1);
  // Upstreams that sign want all thinking that they have signed. Few others want the
  // reasoning of earlier questions, and those refuse a request without it.
  const signs = !["openai_chat", "ollama"].includes(first.dialect);
  await checkReceived(first, "back", { thinking: signs });
}

/** The scenarios: each upstream of another dialect, a switch from each to the next. */
function scenarios(sdk, upstreams) {
  const others = upstreams.filter((upstream) => upstream.dialect !== sdk.dialect);
  if (others.length === 0) {
    console.log(`FAILED  ${sdk.name}: no backend speaks another dialect`);
    process.exit(1);
  }
  const next = (index) => others[(index + 1) % others.length];
  return [
    ...others.flatMap((one) => [
      [`over ${one.name}`, () => toolLoop(sdk, one)],
      [`over ${one.name}, two calls at once`, () => parallelCalls(sdk, one)],
    ]),
    ...others
      .map((one, index) => [one, next(index)])
      .filter(([one, other]) => one !== other)
      .map(([one, other]) => [
        `from ${one.name} to ${other.name} and back`,
        () => switchAndBack(sdk, one, other),
      ]),
  ];
}

let collected = null;

/** From now on, scripts that are imported only add their SDKs to the list that this returns. */
export function collect() {
  collected = [];
  return collected;
}

/**
 * Runs every scenario of the given SDKs and exits.
 *
 * An SDK is `{ name, dialect, model, start, stops, returnsSignatures, reportsUsage }`.
 * `start(model)` opens a conversation; its methods `say(text)` and `answer([[call, result], ...])`
 * each return a turn. `stops` has two stop reasons: of a turn that calls a tool, and of one that
 * does not.
 * `returnsSignatures`: it sends signatures or encrypted contents back with the history.
 * `reportsUsage`: false if it does not show the numbers of tokens.
 */
export async function main(...sdks) {
  if (collected) {
    collected.push(...sdks);
    return;
  }
  const upstreams = await listUpstreams();
  const all = sdks.flatMap((sdk) =>
    scenarios(sdk, upstreams).map(([name, scenario]) => [`${sdk.name} ${name}`, scenario]),
  );
  await run(all);
}

/** Runs one scenario over every upstream and exits; for what only one library has. */
export async function runOverEach(name, scenario) {
  const upstreams = await listUpstreams();
  await run(
    upstreams.map((upstream) => [
      `${name} over ${upstream.name}`,
      async () => {
        await upstream.activate();
        await scenario(upstream);
      },
    ]),
  );
}

async function listUpstreams() {
  const listed = await http("GET", `${GATEWAY}/admin/backends`);
  return listed.backends.map((entry) => new Upstream(entry));
}

export async function run(scenarios) {
  let failed = 0;
  for (const [name, scenario] of scenarios) {
    const started = performance.now();
    try {
      await scenario();
      const took = Math.round(performance.now() - started);
      console.log(`ok      ${name} (${took} ms)`);
    } catch (failure) {
      failed += 1;
      console.log(`FAILED  ${name}\n        ${describe(failure)}`);
    }
  }
  process.exit(failed > 0 ? 1 : 0);
}

/** The message of a failed check; for any other error also our line that threw it. */
function describe(failure) {
  if (failure instanceof CheckFailed) return failure.message;
  const frames = String(failure?.stack ?? "").split("\n");
  const ours = frames.find((line) => line.includes("file:") && !line.includes("node_modules"));
  const location = ours ? ` (${ours.trim()})` : "";
  return `${failure?.name ?? "Error"}: ${failure?.message ?? failure}${location}`;
}
