// Reads streams of bytes: lines of JSON, and server-sent events. Cuts may be anywhere, also within a character.

/** The lines of a stream of bytes, without their ends. An incomplete last line is dropped: its rest never came. */
export async function* readLines(stream: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of stream) {
    rest += decoder.decode(bytes, { stream: true });
    let end = rest.indexOf("\n");
    if (end < 0) continue;
    let start = 0;
    for (; end >= 0; end = rest.indexOf("\n", start)) {
      const line = rest.slice(start, rest[end - 1] === "\r" ? end - 1 : end);
      start = end + 1;
      yield line;
    }
    rest = rest.slice(start);
  }
}

export interface ServerSentEvent {
  id?: string;
  event?: string;
  data: string;
}

/** The events of a stream of server-sent events. Comments and fields that we do not use are skipped. */
export async function* readServerSentEvents(stream: AsyncIterable<Uint8Array>): AsyncGenerator<ServerSentEvent> {
  let data: string[] = [];
  let event: ServerSentEvent = { data: "" };
  for await (const line of readLines(stream)) {
    if (line === "") {
      if (data.length > 0) yield { ...event, data: data.join("\n") };
      data = [];
      event = { data: "" };
      continue;
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") data.push(value);
    else if (name === "id") event.id = value;
    else if (name === "event") event.event = value;
  }
}

/** The chunks of a body. Older browsers cannot iterate over a stream themselves. */
export async function* readChunks(body: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}
