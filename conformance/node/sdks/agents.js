// Coding agents, set up as the README says. Each has one conversation, whose backend changes from
// question to question. `node sdks/agents.js codex` runs only Codex.

import { Agent, program, script } from "../agents.js";
import { GATEWAY, TIMEOUT_MS, check } from "../harness.js";

// The active backend; the others are named in the address.
const ACTIVE = "a";
const BACKENDS = ["a", "responses", "a"];

const OPENCODE = {
  agent: ["opencode", program("opencode-linux-x64-baseline", "bin", "opencode")],
  ask: (text) => ["run", text],
  resume: (text) => ["run", "--continue", text],
};

// `adapt` changes a file of the recipe.
const AGENTS = [
  {
    name: "claude-code",
    agent: ["claude", script("@anthropic-ai", "claude-code", "cli-wrapper.cjs")],
    turn: { client_dialect: "anthropic", model: /^claude-opus-/ },
    ask: (text) => ["-p", text],
    resume: (text) => ["--continue", "-p", text],
  },
  {
    name: "codex",
    agent: ["codex", script("@openai", "codex", "bin", "codex.js")],
    turn: { client_dialect: "openai_responses", model: /^gpt-/ },
    ask: (text) => ["exec", "--skip-git-repo-check", text],
    resume: (text) => ["exec", "--skip-git-repo-check", "resume", "--last", text],
  },
  {
    name: "gemini-cli",
    agent: ["gemini", script("@google", "gemini-cli", "bundle", "gemini.js")],
    turn: { client_dialect: "gemini", model: /^gemini-(?!3-pro$)/ },
    ask: (text) => ["-p", text],
    resume: (text) => ["--resume", "latest", "-p", text],
    // It lists its skills in a random order in the system prompt, and another system prompt
    // counts as another conversation.
    prepare: (agent) =>
      agent.write(".gemini/settings.json", '{ "skills": { "enabled": false } }'),
  },
  {
    name: "opencode",
    turn: { client_dialect: "anthropic", model: /^claude-sonnet-/ },
    ...OPENCODE,
  },
  {
    // It sends no call ids. Every question makes it run a command, so that thinking is in open tool
    // loops too.
    name: "opencode with the google provider",
    recipe: "opencode",
    turn: { client_dialect: "gemini", model: /^gemini-3-pro$/ },
    backends: ["a", "responses", "gemini", "a", "gemini"],
    tool: "bash",
    adapt: (text) =>
      text
        .replace("@ai-sdk/anthropic", "@ai-sdk/google")
        .replace("/v1\"", "/v1beta\"")
        .replaceAll("claude-sonnet-5", "gemini-3-pro")
        .replace('"gemini-3-pro": {}', '"gemini-3-pro": { "reasoning": true }'),
    ...OPENCODE,
  },
];

/** Sends a request to the gateway's admin API. */
async function admin(method, path, body) {
  const reply = await fetch(`${GATEWAY}/admin/${path}`, {
    method,
    headers: { "content-type": "application/json" },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(TIMEOUT_MS),
  });
  check(reply.ok, `${method} /admin/${path} answered ${reply.status}`);
  return reply.json();
}

/** The agent's turns that are not in `known`; each must succeed at `backend`. */
async function newTurns(entry, backend, known) {
  const { turns } = await admin("GET", "turns?limit=200");
  const added = turns.filter(
    (turn) =>
      !known.has(turn.id) &&
      turn.client_dialect === entry.turn.client_dialect &&
      entry.turn.model.test(turn.model),
  );
  check(added.length > 0, `no turn of ${entry.name} reached the gateway`);
  for (const turn of added) {
    known.add(turn.id);
    check(turn.backend === backend, `a turn went to \`${turn.backend}\`, not \`${backend}\``);
    check(
      turn.status === 200 && turn.end === "completed",
      `a turn at \`${backend}\` has status ${turn.status} and ended as ${turn.end}`,
    );
  }
  return added;
}

/** Whether a block of these turns has one of the fates, and was made by a backend that `isMaker` accepts. */
function has(turns, fates, isMaker) {
  const isFound = ({ fate, origin }) => fates.includes(fate) && isMaker(origin?.backend);
  return turns.some(({ blocks }) => blocks.some(isFound));
}

/** Checks the thinking in the requests to `backend`; `before` has the backends of the questions before. */
function checkThinking(entry, turns, backend, before) {
  const isOwn = (maker) => maker === backend;
  const isForeign = (maker) => maker !== backend;
  const known = ["sent", "restored"];
  check(!has(turns, known, isForeign), `\`${backend}\` got the thinking of another backend`);
  if (before.includes(backend)) {
    check(has([turns.at(-1)], known, isOwn), `\`${backend}\` does not get its thinking back`);
  } else if (before.length) {
    const reported = has(turns, ["left_out"], isForeign);
    check(reported, `thinking that \`${backend}\` cannot read is not reported as left out`);
  }
  if (entry.tool) {
    check(turns.length > 1, `the agent did not run the tool at \`${backend}\``);
    check(has([turns[0]], known, isOwn), `\`${backend}\` does not get the thinking of its tool loop back`);
  }
}

/** One conversation: a question to each backend in turn. */
async function conversation(entry) {
  const agent = new Agent(entry.recipe ?? entry.name, ...entry.agent);
  entry.prepare?.(agent);
  const { turns: earlier } = await admin("GET", "turns?limit=1000");
  const known = new Set(earlier.map(({ id }) => id));
  const before = [];
  try {
    for (const backend of entry.backends ?? BACKENDS) {
      const url = backend === ACTIVE ? GATEWAY : `${GATEWAY}/b/${backend}`;
      const round = `round ${before.length + 1}`;
      const text = `This is ${round}.${entry.tool ? ` Use the tool ${entry.tool}.` : ""}`;
      const question = before.length ? entry.resume(text) : entry.ask(text);
      const answer = await agent.run(url, question, entry.adapt);
      // An agent may send notes of its own first, and the simulator quotes those instead.
      const expected = before.length || entry.tool ? round : "simulator";
      check(answer.includes(expected), `the answer to ${round} is ${JSON.stringify(answer)}`);
      const turns = await newTurns(entry, backend, known);
      checkThinking(entry, turns, backend, before);
      before.push(backend);
    }
  } finally {
    agent.remove();
  }
}

/** Runs the conversation and prints one line; returns whether it passed. */
async function report(entry) {
  const name = `${entry.name} over ${(entry.backends ?? BACKENDS).join(", ")}`;
  const [, start] = entry.agent;
  if (!start) {
    console.log(`skipped ${name}: its package is not pinned for this platform`);
    return true;
  }
  const started = performance.now();
  try {
    await conversation(entry);
  } catch (failure) {
    console.log(`FAILED  ${name}\n        ${failure.message}`);
    return false;
  }
  console.log(`ok      ${name} (${Math.round(performance.now() - started)} ms)`);
  return true;
}

const names = process.argv.slice(2);
const isChosen = ({ name, recipe }) => names.includes(name) || names.includes(recipe);
const chosen = AGENTS.filter((entry) => names.length === 0 || isChosen(entry));
await admin("POST", "switch", { backend: ACTIVE });
// All at once, because an agent needs most of its time to start.
const passed = await Promise.all(chosen.map(report));
process.exit(passed.length > 0 && passed.every(Boolean) ? 0 : 1);
