// What the inspector shows: recent turns as they come, backends, and the thinking memory over time.

import * as admin from "../api/admin";
import { waitingTime } from "../lib/follow";

const MAX_TURNS = 1000;
const REFRESH_MS = 2500;
const MAX_SAMPLES = 240;

export interface MemorySample {
  time: number;
  values: Record<string, number>;
}

export class Inspector {
  turns = $state.raw<admin.TurnRecord[]>([]);
  loaded = $state(false);
  lost = $state(false);
  paused = $state(false);
  active = $state("");
  backends = $state.raw<admin.Backend[]>([]);
  samples = $state.raw<MemorySample[]>([]);
  error = $state<string | null>(null);
  private byId = new Map<string, admin.TurnRecord>();
  private readonly stop = new AbortController();
  private readonly timer: ReturnType<typeof setInterval>;

  constructor() {
    void this.watch();
    void this.refresh();
    this.timer = setInterval(() => void this.refresh(), REFRESH_MS);
  }

  close(): void {
    this.stop.abort();
    clearInterval(this.timer);
  }

  /** Lists what there is, then adds each turn as it ends; goes on after a break. */
  private async watch(): Promise<void> {
    const { signal } = this.stop;
    for (let attempt = 1; !signal.aborted; attempt += 1) {
      try {
        const stream = admin.turnStream(signal);
        this.add(await admin.turns(MAX_TURNS));
        this.loaded = true;
        this.lost = false;
        for await (const turn of stream) {
          attempt = 1;
          this.add([turn]);
        }
      } catch {
        if (signal.aborted) return;
      }
      this.lost = true;
      await new Promise((resolve) => setTimeout(resolve, waitingTime(attempt)));
    }
  }

  /** The stream has only turns that have ended; running ones and the state of backends are asked for. */
  private async refresh(): Promise<void> {
    if (document.hidden || this.paused) return;
    try {
      const [backends, memory, recent] = await Promise.all([admin.backends(), admin.thinking(), admin.turns(20)]);
      this.active = backends.active;
      this.backends = backends.backends;
      this.samples = [...this.samples, { time: Date.now(), values: memory }].slice(-MAX_SAMPLES);
      if (recent.some((turn) => this.byId.get(turn.id)?.end !== turn.end)) this.add(recent);
    } catch {
      // `lost` says so already.
    }
  }

  private add(list: readonly admin.TurnRecord[]): void {
    if (this.paused && this.loaded) return;
    for (const turn of list) this.byId.set(turn.id, turn);
    const turns = [...this.byId.values()].sort((one, other) => (one.id < other.id ? 1 : -1)).slice(0, MAX_TURNS);
    if (this.byId.size > MAX_TURNS) this.byId = new Map(turns.map((turn) => [turn.id, turn]));
    this.turns = turns;
  }

  async switchTo(backend: string): Promise<void> {
    this.error = null;
    try {
      this.active = (await admin.switchTo(backend)).active;
    } catch (error) {
      this.error = error instanceof Error ? error.message : String(error);
    }
  }

  /** The request before this one in the same conversation. */
  previous(turn: admin.TurnRecord): admin.TurnRecord | undefined {
    return this.turns.find((other) => other.lineage === turn.lineage && other.lineage !== "" && other.id < turn.id && other.status > 0);
  }
}

/** An answer in any dialect, as events and as bytes. */
export class Exchange {
  events = $state.raw<{ name: string; data: string }[]>([]);
  raw = $state("");
  status = $state(0);
  ms = $state(0);
  running = $state(false);
  error = $state<string | null>(null);
  private controller: AbortController | null = null;

  stop(): void {
    this.controller?.abort();
  }

  async send(dialect: string, backend: string | null, text: string): Promise<void> {
    this.stop();
    const controller = new AbortController();
    this.controller = controller;
    this.events = [];
    this.raw = "";
    this.status = 0;
    this.error = null;
    this.running = true;
    const began = performance.now();
    try {
      const { response, chunks } = await admin.tryRequest(dialect, backend, text, controller.signal);
      this.status = response.status;
      this.ms = Math.round(performance.now() - began);
      await this.read(response.headers.get("content-type") ?? "", chunks);
    } catch (error) {
      if (!controller.signal.aborted) this.error = error instanceof Error ? error.message : String(error);
    }
    this.running = false;
  }

  private async read(type: string, chunks: AsyncIterable<Uint8Array>): Promise<void> {
    const { readLines, readServerSentEvents } = await import("../lib/lines");
    const decoder = new TextDecoder();
    const keep = async function* (this: Exchange) {
      for await (const bytes of chunks) {
        this.raw = (this.raw + decoder.decode(bytes, { stream: true })).slice(-MAX_RAW);
        yield bytes;
      }
    }.call(this);
    if (type.includes("event-stream")) {
      for await (const event of readServerSentEvents(keep)) this.addEvent(event.event ?? "data", event.data);
    } else if (type.includes("ndjson")) {
      for await (const line of readLines(keep)) if (line) this.addEvent(nameOf(line), line);
    } else {
      for await (const _ of keep);
      this.addEvent(type.split(";")[0] ?? "", this.raw);
    }
  }

  private addEvent(name: string, data: string): void {
    this.events = [...this.events.slice(-MAX_EVENTS + 1), { name: name === "data" ? nameOf(data) : name, data }];
  }
}

const MAX_RAW = 500_000;
const MAX_EVENTS = 2000;

function nameOf(data: string): string {
  try {
    const value = JSON.parse(data) as { type?: string; object?: string };
    return value.type ?? value.object ?? "data";
  } catch {
    return data.slice(0, 20);
  }
}
