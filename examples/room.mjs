// Joins a room, shows what a model thinks while it thinks, and decides about messages in a blocking hook.

import { createServer } from 'node:http';

const BASE = process.env.BASE ?? 'http://127.0.0.1:8484';

async function call(method, path, body) {
  const reply = await fetch(BASE + path, {
    method,
    headers: { 'content-type': 'application/json' },
    body: body && JSON.stringify(body),
  });
  if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${await reply.text()}`);
  return reply.status === 204 ? null : reply.json();
}

/** A hook that replaces a word in what people say. Check `webhook-signature` in a real one, as room.py does. */
async function startHook() {
  const server = createServer(async (request, reply) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    const { data } = JSON.parse(Buffer.concat(parts));
    reply.setHeader('content-type', 'application/json');
    reply.end(JSON.stringify({ action: 'replace', content: data.content.replaceAll('darn', '****') }));
  });
  await new Promise((started) => server.listen(0, '127.0.0.1', started));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

/** The events of a room, one by one. */
async function* events(room) {
  const reply = await fetch(`${BASE}/api/rooms/${room}/events`);
  let text = '';
  for await (const part of reply.body.pipeThrough(new TextDecoderStream())) {
    text += part;
    const frames = text.split('\n\n');
    text = frames.pop();
    for (const frame of frames) {
      const data = frame.split('\n').find((line) => line.startsWith('data: '));
      if (data) yield JSON.parse(data.slice('data: '.length));
    }
  }
}

const hook = await startHook();
const channel = `guide-${Date.now()}`;
await call('POST', '/api/channels', { id: channel, thinkingBudget: 2048 });
const { id: room } = await call('POST', '/api/rooms', { title: 'Hall' });
await call('POST', `/api/rooms/${room}/channels`, { channel, category: 'intelligence', metadata: { reply: 'always' } });
await call('POST', `/api/rooms/${room}/hooks`, {
  trigger: 'before_message',
  url: hook.url,
  secret: 'any text',
  blocking: true,
  onFailure: 'closed',
});
const stream = events(room);
await call('POST', `/api/rooms/${room}/messages`, { participant: 'ada', content: 'Why does this darn heron stand on one leg?' });
for await (const event of stream) {
  if (event.type === 'THINKING_DELTA') process.stdout.write(event.data.text);
  if (event.type === 'THINKING_END') process.stdout.write('\n');
  if (event.type === 'ERROR') throw new Error(event.data.message);
  if (event.type !== 'MESSAGE') continue;
  console.log(`${event.channel ?? event.data.author}: ${event.data.content}`);
  if (event.channel === channel) break;
}
hook.close();
