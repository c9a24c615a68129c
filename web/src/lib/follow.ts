// Reads a run or a room over as many connections as it takes. Nothing that is stored is lost and nothing comes twice: each new
// connection begins after the last line that was read.

/** A line of a run. `seq` rises, and may skip numbers. */
export interface RunLine {
  type: string;
  seq: number;
  [member: string]: unknown;
}

/** What can be followed. Only what has a `seq` is stored, and can be asked for again. */
export interface Followed {
  type: string;
  seq?: number;
}

/** An error after which another connection would fail in the same way. */
export class FinalError extends Error {}

export interface Following<Line extends Followed = RunLine> {
  /** Opens a connection that gives the lines after a number. */
  connect: (after: number, signal: AbortSignal) => Promise<AsyncIterable<Line>>;
  signal: AbortSignal;
  /** Waits before the next try. `attempt` counts tries without any new line, from 1. */
  wait?: (attempt: number, signal: AbortSignal) => Promise<void>;
  /** Called when the connection breaks, and when lines arrive again. */
  onConnection?: (connected: boolean) => void;
  /** After so long without a line another connection is tried: a network may vanish without a word. */
  silence?: number;
}

const MAX_SILENCE_MS = 30_000;

/** Yields all lines after `after`, up to `done`. Throws a `FinalError`, or the reason of `signal`. */
export async function* follow<Line extends Followed>(following: Following<Line>, after = 0): AsyncGenerator<Line> {
  const { connect, signal, wait = backOff, onConnection, silence = MAX_SILENCE_MS } = following;
  let last = after;
  let attempt = 0;
  for (;;) {
    signal.throwIfAborted();
    const begin = last;
    const watch = new ConnectionWatch(signal, silence);
    try {
      for await (const line of await connect(last, watch.signal)) {
        watch.heard();
        // A server that repeats lines must not make us repeat them.
        if (line.seq !== undefined && line.seq <= begin) continue;
        if (attempt > 0) onConnection?.(true);
        attempt = 0;
        last = line.seq ?? last;
        yield line;
        if (line.type === "done") return;
      }
    } catch (error) {
      if (signal.aborted || error instanceof FinalError) throw error;
    } finally {
      watch.end();
    }
    // The model may just be silent, so the reader does not hear of it.
    if (watch.wasSilent) continue;
    attempt += 1;
    onConnection?.(false);
    await wait(attempt, signal);
  }
}

/** Ends a connection if the browser goes offline, or if nothing arrives for too long. */
class ConnectionWatch {
  wasSilent = false;
  private readonly controller = new AbortController();
  private timer: ReturnType<typeof setTimeout> | undefined;
  readonly signal: AbortSignal;

  constructor(outer: AbortSignal, private readonly silence: number) {
    this.signal = AbortSignal.any([outer, this.controller.signal]);
    globalThis.addEventListener?.("offline", this.lose);
    this.heard();
  }

  heard(): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.wasSilent = true;
      this.lose();
    }, this.silence);
  }

  end(): void {
    clearTimeout(this.timer);
    globalThis.removeEventListener?.("offline", this.lose);
  }

  private readonly lose = () => this.controller.abort(new Error("the connection is lost"));
}

const FIRST_WAIT_MS = 250;
const MAX_WAIT_MS = 10_000;

/** How long to wait before a try: longer each time, and not the same for all readers. */
export function waitingTime(attempt: number, random = Math.random()): number {
  const most = Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** (attempt - 1));
  return most / 2 + (most / 2) * random;
}

/** Waits, but not longer than until the network is back. */
function backOff(attempt: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      globalThis.removeEventListener?.("online", finish);
      signal.removeEventListener("abort", finish);
      resolve();
    };
    const timer = setTimeout(finish, waitingTime(attempt));
    globalThis.addEventListener?.("online", finish);
    signal.addEventListener("abort", finish);
  });
}
