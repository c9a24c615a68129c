// A `fetch` for AG-UI agents that continues a stream when its connection breaks:
//
//   new HttpAgent({ url: "http://127.0.0.1:8484/ag-ui", fetch: resumingFetch })
//
// It also reads `GET /ag-ui/{threadId}?follow=true`, which has no end.

const PAUSE_MS = 500;

export async function resumingFetch(url, init = {}) {
  const isRun = init.method === "POST";
  const address = isRun ? addressOfRun(url, JSON.parse(init.body)) : url;
  let reply = await fetch(url, init);
  if (!reply.ok) return reply;
  const { headers } = reply;
  let cursor = "";
  let ended = false;

  /** Yields the whole frames of one connection. A frame that was cut is sent again after the cursor. */
  async function* frames() {
    let text = "";
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      for (let part; !(part = await reader.read()).done; ) {
        text += part.value;
        const whole = text.split("\n\n");
        text = whole.pop();
        for (const frame of whole) {
          cursor = frame.match(/^id: ?(.*)$/m)?.[1] ?? cursor;
          ended ||= isRun && /^data: ?\{"type":"RUN_(FINISHED|ERROR)"/m.test(frame);
          yield `${frame}\n\n`;
        }
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  /** Connects again, until the server answers. */
  async function connect() {
    const again = { headers: { ...init.headers, "last-event-id": cursor }, signal: init.signal };
    for (;;) {
      try {
        reply = await fetch(address, again);
        if (reply.ok) return;
        if (reply.status < 500) break;
      } catch (error) {
        if (init.signal?.aborted) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    }
    throw new Error(`the stream cannot be continued: ${reply.status} ${await reply.text()}`);
  }

  async function* joined() {
    while (!ended) {
      try {
        yield* frames();
      } catch (error) {
        if (init.signal?.aborted) throw error;
      }
      if (!ended) await connect();
    }
  }

  const events = joined();
  const body = new ReadableStream({
    async pull(controller) {
      const { done, value } = await events.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    cancel: () => void events.return(),
  });
  return new Response(body.pipeThrough(new TextEncoderStream()), { headers });
}

function addressOfRun(url, { threadId, runId }) {
  return `${url}/${encodeURIComponent(threadId)}/runs/${encodeURIComponent(runId)}`;
}
