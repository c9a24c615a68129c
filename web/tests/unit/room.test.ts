// The state of a room from its events.

import { describe, expect, test } from "vitest";

import { activity, addEvent, newRoomState, settle, type RoomEvent, type RoomMessage, type RoomState } from "../../src/lib/room";

const event = (type: string, data: Record<string, unknown> = {}, more: Partial<RoomEvent> = {}): RoomEvent => ({
  type, room: "room_1", channel: "tutor", run: "run_1", data, ...more,
});
const answer = (seq: number, blocks: unknown[] = [{ type: "text", text: "Because." }]) =>
  event("MESSAGE", { id: "node_2", role: "assistant", channel: "tutor", status: "complete", contentBlocks: blocks }, { seq });
const question = event("MESSAGE", { id: "node_1", role: "user", author: "ada", contentBlocks: [{ type: "text", text: "Why?" }] }, { seq: 1, channel: undefined, run: undefined });

function play(events: RoomEvent[], state: RoomState = newRoomState()): RoomState {
  events.forEach((one, at) => addEvent(state, one, at * 100));
  return state;
}
const texts = (state: RoomState) => state.live[0]?.turn.parts.map((part) => (part.kind === "thinking" || part.kind === "text" ? part.text : part.kind));

describe("room", () => {
  test("message_has_its_author_and_its_parts", () => {
    const state = play([question, answer(2)]);
    expect(state.entries.map((entry) => entry.kind === "message" && [entry.author, entry.role, entry.parts])).toEqual([
      ["ada", "user", [{ kind: "text", text: "Why?" }]],
      ["tutor", "assistant", [{ kind: "text", text: "Because." }]],
    ]);
    expect(state.seq).toBe(2);
  });

  test("stored_event_counts_once_after_a_new_connection", () => {
    const state = play([question, answer(2), question, answer(2)]);
    expect(state.entries).toHaveLength(2);
  });

  test("thinking_grows_and_ends_before_the_message", () => {
    const state = play([event("TYPING", { active: true }), event("THINKING_START"), event("THINKING_DELTA", { text: "One. " }), event("THINKING_DELTA", { text: "Two." })]);
    expect(texts(state)).toEqual(["One. Two."]);
    expect(activity(state.live[0]!)).toBe("thinking");
    play([event("THINKING_END", { text: "One. Two." })], state);
    expect(activity(state.live[0]!)).toBe("writing");
    play([event("TYPING", { active: false }), answer(1)], state);
    expect(state.live).toEqual([]);
    expect(state.entries[0]?.key).toBe("run_1");
  });

  test("thinking_is_not_repeated_after_a_new_connection", () => {
    const state = play([event("THINKING_START"), event("THINKING_DELTA", { text: "One. " })]);
    play([event("THINKING_START"), event("THINKING_DELTA", { text: "One. Two. " }), event("THINKING_DELTA", { text: "Three." })], state);
    expect(texts(state)).toEqual(["One. Two. Three."]);
  });

  test("second_span_is_separated_and_repeated_without_the_first", () => {
    const first = [event("THINKING_START"), event("THINKING_DELTA", { text: "One." }), event("THINKING_END", { text: "One." })];
    const state = play([...first, event("THINKING_START"), event("THINKING_DELTA", { text: "Two" })]);
    expect(texts(state)).toEqual(["One.\n\nTwo"]);
    play([event("THINKING_START"), event("THINKING_DELTA", { text: "Two." })], state);
    expect(texts(state)).toEqual(["One.\n\nTwo."]);
  });

  test("tool_calls_and_results_stay_in_order", () => {
    const call = { id: "call_1", name: "calc__add", arguments: { a: 1 } };
    const state = play([
      event("THINKING_START"), event("THINKING_DELTA", { text: "First." }), event("THINKING_END"),
      event("TOOL_CALL", call, { seq: 1 }),
      event("APPROVAL_NEEDED", call, { seq: 2 }),
    ]);
    expect(activity(state.live[0]!)).toBe("waiting");
    expect(state.live[0]?.waiting).toEqual([{ ...call, question: undefined, needsInput: false }]);
    play([event("TOOL_RESULT", { id: "call_1", content: "3", isError: false }, { seq: 3 }), event("THINKING_START"), event("THINKING_DELTA", { text: "Then." })], state);
    expect(state.live[0]?.waiting).toEqual([]);
    expect(texts(state)).toEqual(["First.", "tool", "Then."]);
    expect(state.live[0]?.turn.parts[1]).toMatchObject({ name: "calc__add", result: { text: "3", failed: false } });
  });

  test("message_has_the_results_of_its_calls", () => {
    const blocks = [
      { type: "tool_call", id: "call_1", name: "add", arguments: {} },
      { type: "tool_result", id: "call_1", content: "3", is_error: false },
      { type: "text", text: "Three." },
    ];
    const message = play([answer(1, blocks)]).entries[0] as RoomMessage;
    expect(message.parts).toMatchObject([{ kind: "tool", result: { text: "3" } }, { kind: "text", text: "Three." }]);
  });

  test("message_keeps_the_times_of_its_thinking_and_no_signature", () => {
    const state = play([event("THINKING_START"), event("THINKING_DELTA", { text: "So." }), event("THINKING_END")]);
    play([answer(1, [{ type: "thinking", thinking: "So.", signature: "secret" }, { type: "text", text: "Yes." }])], state);
    expect((state.entries[0] as RoomMessage).parts[0]).toMatchObject({ kind: "thinking", began: 0, ended: 200 });
    expect(JSON.stringify(state)).not.toContain("secret");
  });

  test("two_members_think_at_the_same_time", () => {
    const critic = { channel: "critic", run: "run_2" };
    const state = play([event("THINKING_START"), event("THINKING_START", {}, critic), event("THINKING_DELTA", { text: "b" }, critic), event("THINKING_DELTA", { text: "a" })]);
    expect(state.live.map((live) => [live.channel, live.turn.parts.map((part) => part.kind === "thinking" && part.text)])).toEqual([["tutor", ["a"]], ["critic", ["b"]]]);
    play([answer(1)], state);
    expect(state.live.map((live) => live.channel)).toEqual(["critic"]);
  });

  test("error_is_an_entry_and_ends_a_silent_answer", () => {
    const state = play([event("TYPING", { active: true }), event("ERROR", { kind: "overloaded", message: "later" }, { seq: 1 })]);
    expect(state.entries).toEqual([{ kind: "error", key: "error 1", channel: "tutor", reason: "overloaded", message: "later" }]);
    expect(state.live).toEqual([]);
  });

  test("run_that_ended_unseen_is_settled", () => {
    const state = play([event("THINKING_START"), event("THINKING_DELTA", { text: "So" })]);
    settle(state, "run_1", 500);
    expect(activity(state.live[0]!)).toBeNull();
    expect(texts(state)).toEqual(["So"]);
  });

  test("unknown_event_changes_nothing", () => {
    expect(play([event("SOMETHING_NEW", { x: 1 })])).toEqual(newRoomState());
  });
});
