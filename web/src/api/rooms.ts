// Rooms, channels and hooks: the calls of docs/rooms.md.

import { FinalError } from "../lib/follow";
import { readChunks, readServerSentEvents } from "../lib/lines";
import type { RoomEvent } from "../lib/room";
import { Problem, call, callAll, send, type Schemas } from "./http";

export type Room = Schemas["RoomView"];
export type Binding = Schemas["BindingView"];
export type Category = Schemas["Category"];
export type Channel = Schemas["ChannelView"];
export type Hook = Schemas["HookView"];
export type Trigger = Schemas["Trigger"];

/** A call of a hook that failed too often. */
export interface DeadCall {
  id: string;
  hook: string;
  trigger: Trigger;
  url: string;
  attempts: number;
  error?: string | null;
}

/** What the answers of a room have cost. */
export type Cost = Schemas["CostView"];

const at = (room: string, rest = "") => `/api/rooms/${encodeURIComponent(room)}${rest}`;

export const list = async (): Promise<Room[]> => (await callAll<Room, "rooms">("/api/rooms", "rooms")).entries;

export const create = (title: string) => call<Room>("POST", "/api/rooms", { body: { title } });

export const read = (room: string) => call<Room>("GET", at(room));

export const rename = (room: string, title: string) => call<Room>("PATCH", at(room), { body: { title } });

export const remove = (room: string) => call<void>("DELETE", at(room));

export const channels = async (): Promise<Channel[]> => (await callAll<Channel, "channels">("/api/channels", "channels")).entries;

export const createChannel = (body: Partial<Schemas["NewChannel"]>) => call<Channel>("POST", "/api/channels", { body });

export const bind = (room: string, channel: string, category: Category, metadata: Partial<Schemas["Metadata"]>) =>
  call<Room>("POST", at(room, "/channels"), { body: { channel, category, metadata } });

export const unbind = (room: string, channel: string) => call<void>("DELETE", at(room, `/channels/${encodeURIComponent(channel)}`));

export const say = (room: string, participant: string, content: string, clientRequestId: string) =>
  call<Schemas["SaidMessage"]>("POST", at(room, "/messages"), { body: { participant, content, clientRequestId } });

export const approve = (room: string, id: string, approve: boolean, input?: unknown) =>
  call<void>("POST", at(room, `/approvals/${encodeURIComponent(id)}`), { body: { approve, input } });

export const hooks = (room: string) => call<Schemas["HookList"]>("GET", at(room, "/hooks")).then((list) => list.hooks);

export const addHook = (room: string, body: Partial<Schemas["NewHook"]>) => call<Hook>("POST", at(room, "/hooks"), { body });

export const removeHook = (room: string, hook: string) => call<void>("DELETE", at(room, `/hooks/${encodeURIComponent(hook)}`));

export const deadCalls = async (room: string): Promise<DeadCall[]> => (await callAll<DeadCall, "dead">(at(room, "/hooks/dead"), "dead")).entries;

export const replay = (room: string, id: string) => call<void>("POST", at(room, `/hooks/dead/${encodeURIComponent(id)}/replay`));

export const cost = (room: string) => call<Cost>("GET", at(room, "/cost"));

/** The events after a number, those so far and those to come. */
export async function events(room: string, after: number, signal: AbortSignal): Promise<AsyncIterable<RoomEvent>> {
  try {
    return roomEvents(await send("GET", at(room, `/events?after=${after}`), { signal }));
  } catch (error) {
    // The server knows better than another try would.
    if (error instanceof Problem && error.status < 500 && error.status !== 429) throw new FinalError(error.message, { cause: error });
    throw error;
  }
}

async function* roomEvents(response: Response): AsyncGenerator<RoomEvent> {
  if (!response.body) return;
  for await (const event of readServerSentEvents(readChunks(response.body))) yield JSON.parse(event.data) as RoomEvent;
}
