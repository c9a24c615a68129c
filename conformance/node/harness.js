// What every SDK has to show, whichever SDK it is: the same as in
// ../python/harness.py, for Node. An SDK's own file says how it asks, how it
// keeps a history and what it calls things.
//
// The gateway's address comes by environment (THROUGHLINE_URL); which backends
// there are and where their simulators listen, the gateway tells.

export const GATEWAY = (process.env.THROUGHLINE_URL ?? "").replace(/\/$/, "");
// Milliseconds; long enough for a busy machine, a reply of a simulator takes few.
export const PATIENCE = 30_000;

export const TOOL = "get_weather";
export const TOOL_ABOUT = "The weather in a city";
export const TOOL_SCHEMA = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
};
const RESULT = "17 degrees and a light wind";
// What stands for a turn of which nothing is left. No turn here is one.
const NOTICE = "[reasoning omitted]";

/** One reply, as the SDK's types show it; `seals` are the values it carries and cannot read. */
export function emptyTurn() {
  return {
    reasoning: "",
    text: "",
    calls: [], // { id, name, arguments }
    stop: "",
    inputTokens: 0,
    outputTokens: 0,
    seals: [],
    model: "",
  };
}

class Failed extends Error {}

export function check(holds, otherwise) {
  if (!holds) throw new Failed(otherwise);
}

/** Plain HTTP for what is not the SDK's: the admin API and the recordings. */
async function http(method, url, body) {
  const reply = await fetch(url, {
    method,
    headers: { "content-type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE),
  });
  check(reply.ok, `${method} ${url} answered ${reply.status}`);
  return reply.json();
}

/** A backend of the gateway and the recording of the simulator behind it. */
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

  /** The bodies that came since the last look; a refusal among them is a failure. */
  async received() {
    const listed = await http("GET", `${this.recording}?after=${this.seen}`);
    this.seen = listed.last;
    const asked = listed.requests.filter((entry) => entry.method === "POST");
    for (const entry of asked) {
      check(
        entry.status === 200,
        `\`${this.name}\` refused with ${entry.status}: ${JSON.stringify(entry.refusal)}`,
      );
    }
    return asked.map((entry) => JSON.parse(Buffer.from(entry.body_base64, "base64")));
  }
}

/** The thinking in a request's history, in the places where each dialect has it. */
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
        // Some servers have no member for it: it stays in the text it came in.
        JSON.stringify(message.content ?? "").includes("<think>"),
    ),
};

/** What every turn shows; answers its first call, if there is one. */
function checkTurn(sdk, turn, where, calls) {
  const shown = JSON.stringify;
  check(turn.reasoning.trim(), `${where}: no reasoning was seen`);
  check(!turn.text.includes("<think"), `${where}: a tag in the text: ${shown(turn.text)}`);
  check(turn.text.trim(), `${where}: no text was seen`);
  const stop = calls > 0 ? sdk.stops[0] : sdk.stops[1];
  check(turn.stop === stop, `${where}: stopped for ${shown(turn.stop)}, not ${shown(stop)}`);
  check(
    sdk.counts === false || (turn.inputTokens > 0 && turn.outputTokens > 0),
    `${where}: usage is ${turn.inputTokens} in, ${turn.outputTokens} out`,
  );
  if (sdk.sealed) {
    check(turn.seals.length > 0, `${where}: nothing seals the reasoning, so it cannot come back`);
  }
  check(
    turn.model === sdk.model,
    `${where}: answered as ${shown(turn.model)}, asked was ${shown(sdk.model)}`,
  );
  check(
    turn.calls.length === calls,
    `${where}: ${turn.calls.length} tool calls, not ${calls}: ${shown(turn.calls)}`,
  );
  for (const call of turn.calls) {
    check(call.name === TOOL, `${where}: the call is of ${shown(call.name)}`);
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

/** One request came and was not refused; with thinking in it where there has to be. */
async function checkReceived(upstream, where, { thinking }) {
  const bodies = await upstream.received();
  check(
    bodies.length === 1,
    `${where}: \`${upstream.name}\` got ${bodies.length} requests, not one`,
  );
  check(
    !JSON.stringify(bodies[0]).includes(NOTICE),
    `${where}: \`${upstream.name}\` was told "${NOTICE}" where no turn is empty`,
  );
  const found = THINKING[upstream.dialect](bodies[0]).filter(Boolean);
  check(found.length > 0 || !thinking, `${where}: \`${upstream.name}\` got its thinking not back`);
}

/** The model calls a tool and answers from its result, the thinking back in its place. */
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
async function callsAtOnce(sdk, upstream) {
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

/** A switch between a call and its result, a loop there, and back again. */
async function switched(sdk, first, second) {
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
  // Whoever signs reads all it has signed. Few others want reasoning of earlier
  // questions, and those that do refuse what lacks it.
  const signs = !["openai_chat", "ollama"].includes(first.dialect);
  await checkReceived(first, "back", { thinking: signs });
}

/** Each upstream of another dialect, and a switch from each to the next. */
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
      [`over ${one.name}, two calls at once`, () => callsAtOnce(sdk, one)],
    ]),
    ...others
      .map((one, index) => [one, next(index)])
      .filter(([one, other]) => one !== other)
      .map(([one, other]) => [
        `from ${one.name} to ${other.name} and back`,
        () => switched(sdk, one, other),
      ]),
  ];
}

/**
 * Runs every scenario of the given SDKs and ends the process.
 *
 * An SDK is `{ name, dialect, model, start, stops, sealed, counts }`: `start(model)`
 * opens a conversation with `say(text)` and `answer([[call, result], ...])`,
 * each a turn; `stops` are what it says at the end of a turn that calls a tool and of
 * one that does not; `sealed`, whether its history has opaque values in it; `counts`, false
 * where it is not told of tokens.
 */
export async function main(...sdks) {
  const upstreams = await list();
  const all = sdks.flatMap((sdk) =>
    scenarios(sdk, upstreams).map(([name, scenario]) => [`${sdk.name} ${name}`, scenario]),
  );
  await run(all);
}

/** Runs one scenario of a library's own over every upstream, and ends the process. */
export async function each(name, scenario) {
  const upstreams = await list();
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

async function list() {
  const listed = await http("GET", `${GATEWAY}/admin/backends`);
  return listed.backends.map((entry) => new Upstream(entry));
}

async function run(scenarios) {
  let failed = 0;
  for (const [name, scenario] of scenarios) {
    const started = performance.now();
    try {
      await scenario();
      const took = Math.round(performance.now() - started);
      console.log(`ok      ${name} (${took} ms)`);
    } catch (failure) {
      failed += 1;
      console.log(`FAILED  ${name}\n        ${told(failure)}`);
    }
  }
  process.exit(failed > 0 ? 1 : 0);
}

/** A failed check in a sentence; anything else with the line of ours it came through. */
function told(failure) {
  if (failure instanceof Failed) return failure.message;
  const frames = String(failure?.stack ?? "").split("\n");
  const ours = frames.find((line) => line.includes("file:") && !line.includes("node_modules"));
  const place = ours ? ` (${ours.trim()})` : "";
  return `${failure?.name ?? "Error"}: ${failure?.message ?? failure}${place}`;
}
