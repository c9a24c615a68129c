// Coding agents, set up as the README says. Each has one conversation of three turns; the
// second turn is sent to another backend. `node sdks/agents.js codex` runs only Codex.

import { Agent, program, script } from "../agents.js";
import { GATEWAY, TIMEOUT_MS, check } from "../harness.js";

const FIRST = "a";
const SECOND = "responses";

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
    turn: { client_dialect: "gemini", model: /^gemini-/ },
    ask: (text) => ["-p", text],
    resume: (text) => ["--resume", "latest", "-p", text],
    // It lists its skills in a random order in the system prompt, and another system prompt
    // counts as another conversation.
    prepare: (agent) =>
      agent.write(".gemini/settings.json", '{ "skills": { "enabled": false } }'),
  },
  {
    name: "opencode",
    agent: ["opencode", program("opencode-linux-x64-baseline", "bin", "opencode")],
    turn: { client_dialect: "anthropic", model: /^claude-sonnet-/ },
    ask: (text) => ["run", text],
    resume: (text) => ["run", "--continue", text],
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

/** Whether a block of these turns has one of the fates. */
function has(turns, ...fates) {
  return turns.some(({ blocks }) => blocks.some(({ fate }) => fates.includes(fate)));
}

/** One conversation: a turn at the first backend, one at the second, one at the first again. */
async function conversation(entry) {
  const agent = new Agent(entry.name, ...entry.agent);
  entry.prepare?.(agent);
  const { turns: earlier } = await admin("GET", "turns?limit=1000");
  const known = new Set(earlier.map(({ id }) => id));
  try {
    // An agent may send notes of its own first, and the simulator quotes those instead.
    const first = await agent.run(GATEWAY, entry.ask("Hello, this is round one."));
    check(first.includes("simulator"), `the first answer is ${JSON.stringify(first)}`);
    await newTurns(entry, FIRST, known);

    const second = await agent.run(`${GATEWAY}/b/${SECOND}`, entry.resume("This is round two."));
    check(second.includes("round two"), `the second answer is ${JSON.stringify(second)}`);
    let turns = await newTurns(entry, SECOND, known);
    check(has(turns, "left_out"), "the other backend's thinking is not reported as left out");

    const third = await agent.run(GATEWAY, entry.resume("This is round three."));
    check(third.includes("round three"), `the third answer is ${JSON.stringify(third)}`);
    turns = await newTurns(entry, FIRST, known);
    check(has(turns, "sent", "restored"), "the first backend does not get its thinking back");
  } finally {
    agent.remove();
  }
}

/** Runs the conversation and prints one line; returns whether it passed. */
async function report(entry) {
  const name = `${entry.name} from ${FIRST} to ${SECOND} and back`;
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
const chosen = AGENTS.filter(({ name }) => names.length === 0 || names.includes(name));
await admin("POST", "switch", { backend: FIRST });
// All at once, because an agent needs most of its time to start.
const passed = await Promise.all(chosen.map(report));
process.exit(passed.length > 0 && passed.every(Boolean) ? 0 : 1);
