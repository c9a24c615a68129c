// One open room: its members, and what happens in it.

import { run as readRun } from "../api/projects";
import { Problem } from "../api/http";
import * as api from "../api/rooms";
import { FinalError, follow } from "../lib/follow";
import { FramePainter } from "../lib/frame_painter";
import { addEvent, newRoomState, settle, type RoomEvent, type RoomState } from "../lib/room";
import { messageOf } from "./conversation.svelte";
import { rooms } from "./rooms.svelte";

export class OpenRoom {
  room = $state.raw<api.Room | null>(null);
  channels = $state.raw<api.Channel[]>([]);
  hooks = $state.raw<api.Hook[]>([]);
  dead = $state.raw<api.DeadCall[]>([]);
  cost = $state.raw<api.Cost | null>(null);
  events = $state<RoomState>(newRoomState());
  /** Calls about which this page has sent a decision. */
  decided = $state<Record<string, boolean>>({});
  connected = $state(true);
  missing = $state(false);
  error = $state<string | null>(null);
  private readonly closing = new AbortController();

  constructor(readonly id: string) {
    void this.load();
    void this.follow();
    addEventListener("focus", () => void this.load(), { signal: this.closing.signal });
  }

  close(): void {
    this.closing.abort();
  }

  /** Loads everything but the events. */
  async load(): Promise<void> {
    await this.act(async () => {
      const [room, channels, hooks, dead] = await Promise.all([api.read(this.id), api.channels(), api.hooks(this.id), api.deadCalls(this.id)]);
      this.room = room;
      this.channels = channels;
      this.hooks = hooks;
      this.dead = dead;
      this.cost = await api.cost(this.id);
    });
  }

  private async follow(): Promise<void> {
    const { signal } = this.closing;
    const painter = new FramePainter<RoomEvent>((events) => {
      if (!signal.aborted) this.take(events);
    });
    const connect = async (after: number, inner: AbortSignal) => {
      const events = await api.events(this.id, after, inner);
      this.connected = true;
      // A run may have ended while no connection was open, without a message.
      setTimeout(() => void this.settleEnded(), 1000);
      return events;
    };
    try {
      const onConnection = (connected: boolean) => (this.connected = connected);
      for await (const event of follow({ connect, signal, onConnection })) painter.add(event);
    } catch (error) {
      if (!signal.aborted) this.fail(error instanceof FinalError && error.cause ? error.cause : error);
    }
  }

  private take(events: readonly RoomEvent[]): void {
    for (const event of events) addEvent(this.events, event, performance.now());
    const messages = events.filter((event) => event.type === "MESSAGE");
    const people = this.room?.participants ?? [];
    const isNew = messages.some(({ data }) => typeof data.author === "string" && !people.includes(data.author));
    if (isNew && this.room) void this.load();
    else if (messages.some((event) => event.channel)) void this.act(async () => (this.cost = await api.cost(this.id)));
  }

  /** Asks about answers that seem to go on, and ends those that do not. */
  private async settleEnded(): Promise<void> {
    for (const { run, turn } of [...this.events.live]) {
      if (!run || turn.done || this.closing.signal.aborted) continue;
      const known = await readRun(run).catch((error: unknown) => (error instanceof Problem && error.status === 404 ? null : undefined));
      if (known === null || (known && known.status !== "running")) settle(this.events, run, performance.now());
    }
  }

  /** Does something, and shows an error if it fails. Returns whether it succeeded. */
  async act(what: () => Promise<unknown>): Promise<boolean> {
    try {
      await what();
      return true;
    } catch (error) {
      if (!this.closing.signal.aborted) this.fail(error);
      return false;
    }
  }

  private fail(error: unknown): void {
    if (error instanceof Problem && error.status === 404 && !this.room) this.missing = true;
    else this.error = messageOf(error);
  }

  /** Says something. Returns whether it is stored. */
  say(participant: string, text: string): Promise<boolean> {
    this.error = null;
    const request = crypto.randomUUID();
    return this.act(() => api.say(this.id, participant, text, request));
  }

  async rename(title: string): Promise<boolean> {
    const done = await this.act(async () => (this.room = await api.rename(this.id, title)));
    rooms.changed();
    return done;
  }

  async remove(): Promise<boolean> {
    const done = await this.act(() => api.remove(this.id));
    rooms.changed();
    return done;
  }

  async decide(call: string, approve: boolean, input?: unknown): Promise<void> {
    this.error = null;
    this.decided[call] = approve;
    const done = await this.act(() => api.approve(this.id, call, approve, input));
    if (!done) delete this.decided[call];
  }

  /** Changes something of the room, and loads what it is then. */
  change(what: () => Promise<unknown>): Promise<boolean> {
    this.error = null;
    return this.act(async () => {
      await what();
      await this.load();
    });
  }
}
