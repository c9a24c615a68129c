// `@ag-ui/client`: a call that a person has to approve ends the run with an interrupt. The next run
// sends the decision, and from then on the agent's messages contain the result.

import { HttpAgent } from "@ag-ui/client";

import { Conversation } from "../ag-ui-conversation.js";
import * as harness from "../harness.js";

const tool = {
  name: harness.TOOL,
  description: harness.TOOL_DESCRIPTION,
  parameters: harness.TOOL_SCHEMA,
  metadata: { requiresApproval: true },
};

await harness.runOverEach("ag-ui interrupts", async () => {
  const conversation = new Conversation(HttpAgent, "gpt-5.2", { modern: true, tool });
  let turn = await conversation.say("Use a tool: what is the weather like?");
  harness.check(
    turn.outcome?.type === "interrupt",
    `the outcome is ${JSON.stringify(turn.outcome)}`,
  );
  const [interrupt] = turn.outcome.interrupts;
  const [call] = turn.calls;
  harness.check(interrupt.toolCallId === call.id, "the interrupt is about another call");
  const payload = { approved: true, result: "17 degrees and a light wind" };
  const resume = [{ interruptId: interrupt.id, status: "resolved", payload }];
  turn = await conversation.ask([], { resume });
  harness.check(turn.text.includes(payload.result), `the result is not quoted: ${turn.text}`);
  const result = conversation.agent.messages.find((message) => message.role === "tool");
  harness.check(result?.toolCallId === call.id, "the agent has no message with the result");
  turn = await conversation.say("Thank you.");
  const sent = conversation.sent.messages.some((message) => message.toolCallId === call.id);
  harness.check(sent, "the result is not sent with later runs");
});
