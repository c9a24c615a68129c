// Slow runs behind a proxy that cuts every connection after two seconds: a simulator that streams
// slowly, a gateway, and the proxy, all of this script alone.
//
// CONFORMANCE_RUN_SECONDS is the length of a run; 20 is the length that people wait for.

import { createServer, request as send } from "node:http";

import { startGateway, startSimulator, write } from "./processes.js";

export const RUNS = 10;
export const SECONDS = Number(process.env.CONFORMANCE_RUN_SECONDS ?? 5);
/** Long enough for every run on a busy machine. */
export const TIMEOUT_MS = (SECONDS + 60) * 1000;
const CUT_AFTER_MS = 2000;
const TOKENS_PER_SECOND = 40;

/** What the model says in the run of this number. */
export function reply(number) {
  const tokens = SECONDS * TOKENS_PER_SECOND;
  const sentences = (words, count) =>
    Array.from({ length: count }, (_, at) => `${words} ${at} of run ${number}.`).join(" ");
  return {
    question: `Please begin run number ${number}, now.`,
    // A sentence has about as many tokens as words.
    thinking: sentences("I consider the heron", Math.ceil((tokens * 0.4) / 9)),
    text: sentences("The heron waits at bank", Math.ceil((tokens * 0.6) / 10)),
    tool: { name: "get_weather", input: { city: `City ${number}` } },
  };
}

function scenario() {
  const step = (number) => {
    const { question, thinking, text, tool } = reply(number);
    return [
      "[[step]]",
      `when = { contains = ${JSON.stringify(question)} }`,
      "say = [",
      `  { thinking = ${JSON.stringify(thinking)} },`,
      `  { text = ${JSON.stringify(text)} },`,
      `  { tool = { name = "${tool.name}", input = { city = "${tool.input.city}" } } },`,
      "]",
    ].join("\n");
  };
  // More questions than runs, for those that follow.
  return Array.from({ length: RUNS + 2 }, (_, number) => step(number)).join("\n\n");
}

/** The header by which the proxy tells readers apart. */
export const READER = "x-conformance-reader";

/** How often each reader of a run must have been cut, on a busy machine too. */
export const MIN_CUTS = Math.max(1, Math.floor(SECONDS / 3));

/**
 * Starts everything. `direct` is the address of the gateway, `cut` that of the proxy. `cuts(reader)` is
 * the number of connections of this reader that the proxy has cut so far.
 */
export async function startSlowRuns({ clean }) {
  const file = write("scenario.toml", scenario());
  const simulator = await startSimulator(
    ...["--scenario", file, "--tokens-per-second", String(TOKENS_PER_SECOND)],
  );
  const gateway = await startGateway(
    [
      "[[backend]]",
      'name = "slow"',
      'dialect = "anthropic"',
      `base_url = "http://${simulator}"`,
      'api_key = "conformance"',
      'models = { "*" = "claude-opus-5" }',
    ].join("\n"),
  );
  const proxy = await startProxy(gateway, clean);
  return { direct: `http://${gateway}`, ...proxy };
}

/**
 * A proxy that cuts every connection. With `clean`, every other reply ends as if it were complete, as
 * some proxies do. It holds the last bytes of every other reply back, so that the cut is inside of a
 * frame.
 */
async function startProxy(gateway, clean) {
  const [hostname, port] = gateway.split(":");
  let count = 0;
  const cuts = new Map();
  const server = createServer((request, response) => {
    count += 1;
    const endsCleanly = clean && count % 2 === 0;
    const holdBack = count % 4 < 2 ? 5 : 0;
    let held = Buffer.alloc(0);
    const { method, url: path } = request;
    const headers = { ...request.headers, host: gateway };
    const forwarded = send({ hostname, port, method, path, headers }, (reply) => {
      // With `connection: close`, the `fetch` of Node takes a cut for the end of the reply.
      const { connection, ...headers } = reply.headers;
      response.writeHead(reply.statusCode, headers);
      response.flushHeaders();
      reply.on("data", (part) => {
        const bytes = Buffer.concat([held, part]);
        const at = Math.max(0, bytes.length - holdBack);
        held = bytes.subarray(at);
        response.write(bytes.subarray(0, at));
      });
      reply.on("end", () => response.end(held));
      reply.on("error", () => {});
    });
    forwarded.on("error", () => response.destroy());
    request.pipe(forwarded);
    const timer = setTimeout(() => {
      const reader = request.headers[READER];
      cuts.set(reader, (cuts.get(reader) ?? 0) + 1);
      forwarded.destroy();
      if (endsCleanly) response.end();
      else response.destroy();
    }, CUT_AFTER_MS);
    response.on("close", () => clearTimeout(timer));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = `http://127.0.0.1:${server.address().port}`;
  return { cut, cuts: (reader) => cuts.get(reader) ?? 0 };
}
