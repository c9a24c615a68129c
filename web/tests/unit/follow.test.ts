import { describe, expect, test } from "vitest";

import { FinalError, follow, waitingTime, type RunLine } from "../../src/lib/follow";
import { readLines, readServerSentEvents } from "../../src/lib/lines";

const encoder = new TextEncoder();

async function* bytes(text: string, size: number): AsyncGenerator<Uint8Array> {
  const all = encoder.encode(text);
  for (let at = 0; at < all.length; at += size) yield all.slice(at, at + size);
}

async function collect<T>(list: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const one of list) all.push(one);
  return all;
}

describe("lines", () => {
  const text = '{"a":"漢字 👩‍💻"}\r\n{"b":2}\n{"cut":';
  test.each([1, 2, 3, 7, 1000])("are equal for pieces of %i bytes, and an incomplete one is dropped", async (size) => {
    expect(await collect(readLines(bytes(text, size)))).toEqual(['{"a":"漢字 👩‍💻"}', '{"b":2}']);
  });

  test.each([1, 5, 1000])("server-sent events keep id and name for pieces of %i bytes", async (size) => {
    const stream = ": hello\n\nid: 4\nevent: turn\ndata: {\ndata: }\n\ndata:x\n\nretry: 5\n\n";
    expect(await collect(readServerSentEvents(bytes(stream, size)))).toEqual([
      { id: "4", event: "turn", data: "{\n}" },
      { data: "x" },
    ]);
  });
});

/** A run of 40 lines, and connections that break after some lines. */
function brokenRun(cuts: number[], repeats = 0) {
  const log: RunLine[] = Array.from({ length: 40 }, (_, at) => ({ type: at === 39 ? "done" : "text", seq: 2 * at + 3 }));
  const opened: number[] = [];
  const connect = async (after: number) => {
    const cut = cuts[opened.length];
    opened.push(after);
    const rest = log.filter((line) => line.seq > after - repeats);
    return (async function* () {
      for (const [at, line] of rest.entries()) {
        if (at === cut) throw new TypeError("network error");
        yield line;
      }
    })();
  };
  return { log, opened, connect };
}

describe("follow", () => {
  const wait = async () => {};
  const { signal } = new AbortController();

  test("reads each line once over broken connections", async () => {
    const { log, opened, connect } = brokenRun([0, 3, 10, 1]);
    expect(await collect(follow({ connect, signal, wait }))).toEqual(log);
    expect(opened).toEqual([0, 0, 7, 27, 29]);
  });

  test("drops lines that a server repeats", async () => {
    const { log, connect } = brokenRun([5, 9], 4);
    expect(await collect(follow({ connect, signal, wait }))).toEqual(log);
  });

  test("connects again if the stream ends without its last line", async () => {
    const { log } = brokenRun([]);
    let calls = 0;
    const connect = async (after: number) => {
      calls += 1;
      const lines = log.filter((line) => line.seq > after).slice(0, 25);
      return (async function* () {
        yield* lines;
      })();
    };
    expect(await collect(follow({ connect, signal, wait }))).toEqual(log);
    expect(calls).toBe(2);
  });

  test("counts tries without progress from one, and reports the connection", async () => {
    const { connect } = brokenRun([0, 0, 4, 0]);
    const attempts: number[] = [];
    const states: boolean[] = [];
    const counting = async (attempt: number) => void attempts.push(attempt);
    await collect(follow({ connect, signal, wait: counting, onConnection: (up) => states.push(up) }));
    expect(attempts).toEqual([1, 2, 1, 2]);
    expect(states).toEqual([false, false, true, false, false, true]);
  });

  test("stops at a final error and when it is aborted", async () => {
    const failing = async () => {
      throw new FinalError("404");
    };
    await expect(collect(follow({ connect: failing, signal, wait }))).rejects.toThrow("404");
    const stop = new AbortController();
    const never = async () => {
      stop.abort(new Error("left"));
      throw new TypeError("network error");
    };
    await expect(collect(follow({ connect: never, signal: stop.signal, wait }))).rejects.toThrow();
  });

  /** Connections that give one line and then hang until they are aborted. */
  function hanging() {
    const { log } = brokenRun([]);
    let calls = 0;
    const connect = async (after: number, within: AbortSignal) => {
      calls += 1;
      const rest = log.filter((line) => line.seq > after);
      return (async function* () {
        if (calls > 2) {
          yield* rest;
          return;
        }
        yield rest[0] as RunLine;
        await new Promise((_resolve, reject) => within.addEventListener("abort", () => reject(within.reason)));
      })();
    };
    return { log, connect };
  }

  test("connects again after silence, without a report", async () => {
    const { log, connect } = hanging();
    const states: boolean[] = [];
    const lines = await collect(follow({ connect, signal, wait, silence: 10, onConnection: (up) => states.push(up) }));
    expect(lines).toEqual(log);
    expect(states).toEqual([]);
  });

  test("drops its connection when the browser goes offline", async () => {
    const { log, connect } = hanging();
    const lines: RunLine[] = [];
    for await (const line of follow({ connect, signal, wait })) {
      lines.push(line);
      queueMicrotask(() => dispatchEvent(new Event("offline")));
    }
    expect(lines).toEqual(log);
  });

  test("waits longer each time, up to ten seconds", () => {
    expect(waitingTime(1, 0)).toBe(125);
    expect(waitingTime(1, 1)).toBe(250);
    expect(waitingTime(3, 1)).toBe(1000);
    expect(waitingTime(50, 1)).toBe(10_000);
  });
});
