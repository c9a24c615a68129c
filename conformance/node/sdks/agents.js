// Coding agents set up as the README says: one conversation of three turns, of which
// the second goes to another backend. `node sdks/agents.js codex` runs only Codex.

import { Agent, program, script } from "../agents.js";
import { GATEWAY, PATIENCE, check } from "../harness.js";

const FIRST = "a";
const SECOND = "responses";

const AGENTS = [
  {
    name: "claude-code",
    agent: ["claude", script("@anthropic-ai", "claude-code", "cli-wrapper.cjs")],
    turn: { client_dialect: "anthropic", model: /^claude-opus-/ },
    ask: (text) => ["-p", text],
    goOn: (text) => ["--continue", "-p", text],
  },
  {
    name: "codex",
    agent: ["codex", script("@openai", "codex", "bin", "codex.js")],
    turn: { client_dialect: "openai_responses", model: /^gpt-/ },
    ask: (text) => ["exec", "--skip-git-repo-check", text],
    goOn: (text) => ["exec", "--skip-git-repo-check", "resume", "--last", text],
  },
  {
    name: "gemini-cli",
    agent: ["gemini", script("@google", "gemini-cli", "bundle", "gemini.js")],
    turn: { client_dialect: "gemini", model: /^gemini-/ },
    ask: (text) => ["-p", text],
    goOn: (text) => ["--resume", "latest", "-p", text],
    // It lists its skills in another order after a restart, which looks like another conversation.
    prepare: (agent) =>
      agent.write(".gemini/settings.json", '{ "skills": { "enabled": false } }'),
  },
  {
    name: "opencode",
    agent: ["opencode", program("opencode-linux-x64-baseline", "bin", "opencode")],
    turn: { client_dialect: "anthropic", model: /^claude-sonnet-/ },
    ask: (text) => ["run", text],
    goOn: (text) => ["run", "--continue", text],
  },
];

/** The admin API of the gateway. */
async function admin(method, path, body) {
  const reply = await fetch(`${GATEWAY}/admin/${path}`, {
    method,
    headers: { "content-type": "application/json" },
    body: body && JSON.stringify(body),
    signal: AbortSignal.timeout(PATIENCE),
  });
  check(reply.ok, `${method} /admin/${path} answered ${reply.status}`);
  return reply.json();
}

/** The agent's turns at `backend` since `known`, none of them failed. */
async function newTurns(of, backend, known) {
  const { turns } = await admin("GET", "turns?limit=200");
  const its = turns.filter(
    (turn) =>
      !known.has(turn.id) &&
      turn.client_dialect === of.turn.client_dialect &&
      of.turn.model.test(turn.model),
  );
  check(its.length > 0, `no turn of ${of.name} reached the gateway`);
  for (const turn of its) {
    known.add(turn.id);
    check(turn.backend === backend, `a turn went to \`${turn.backend}\`, not \`${backend}\``);
    check(
      turn.status === 200 && turn.end === "completed",
      `a turn at \`${backend}\` has status ${turn.status} and ended as ${turn.end}`,
    );
  }
  return its;
}

/** Whether a block of these turns has one of the fates. */
function has(turns, ...fates) {
  return turns.some(({ blocks }) => blocks.some(({ fate }) => fates.includes(fate)));
}

/** One conversation: a turn at the first backend, one at the second, one at the first again. */
async function conversation(of) {
  const agent = new Agent(of.name, ...of.agent);
  of.prepare?.(agent);
  const { turns: earlier } = await admin("GET", "turns?limit=1000");
  const known = new Set(earlier.map(({ id }) => id));
  try {
    // An agent may show the model its own notes first, so the quote is not checked here.
    const first = await agent.run(GATEWAY, of.ask("Hello, this is round one."));
    check(first.includes("simulator"), `the first answer is ${JSON.stringify(first)}`);
    await newTurns(of, FIRST, known);

    const second = await agent.run(`${GATEWAY}/b/${SECOND}`, of.goOn("This is round two."));
    check(second.includes("round two"), `the second answer is ${JSON.stringify(second)}`);
    let turns = await newTurns(of, SECOND, known);
    check(has(turns, "left_out"), "the other backend's thinking is not reported as left out");

    const third = await agent.run(GATEWAY, of.goOn("This is round three."));
    check(third.includes("round three"), `the third answer is ${JSON.stringify(third)}`);
    turns = await newTurns(of, FIRST, known);
    check(has(turns, "sent", "restored"), "the first backend does not get its thinking back");
  } finally {
    agent.remove();
  }
}

/** Prints one line; whether the conversation went well. */
async function report(of) {
  const name = `${of.name} from ${FIRST} to ${SECOND} and back`;
  const [, start] = of.agent;
  if (!start) {
    console.log(`skipped ${name}: its package is not pinned for this platform`);
    return true;
  }
  const started = performance.now();
  try {
    await conversation(of);
  } catch (failure) {
    console.log(`FAILED  ${name}\n        ${failure.message}`);
    return false;
  }
  console.log(`ok      ${name} (${Math.round(performance.now() - started)} ms)`);
  return true;
}

const wanted = process.argv.slice(2);
const chosen = AGENTS.filter(({ name }) => wanted.length === 0 || wanted.includes(name));
await admin("POST", "switch", { backend: FIRST });
// Side by side: an agent mostly waits for itself to start.
const passed = await Promise.all(chosen.map(report));
process.exit(passed.length > 0 && passed.every(Boolean) ? 0 : 1);
