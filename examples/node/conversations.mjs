// A webhook that answers conversations: one message of a conversation at a time, in order of arrival.
//
//     scripts/clients/typescript run examples/node/conversations.mjs [redis://127.0.0.1:6379] [PORT]
//
// Start as many as you like, on several machines. Messages of different conversations are answered side by side. All that
// wait in a process share one connection, so there may be thousands of them. A message is answered by 200 when its handler
// is done; by 503 if it was not, and the sender sends it again. A sender that hangs up leaves the queue.
//
//     curl -d "hello" http://127.0.0.1:8000/ann

import { once } from 'node:events';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';
import { Locks } from 'fairlock';

const [url = 'redis://127.0.0.1:6379', port = '8000'] = process.argv.slice(2);
// After a crash, the next message of a conversation is answered when the lease is over.
const client = await createClient({ url }).connect();
const locks = new Locks(client, { lease: 9000, wait: 300_000 });

// Waits until all earlier messages of the conversation are answered.
function onMessage(conversation, message, signal) {
  return locks.run(`conversation:${conversation}`, { signal }, (held) => answer(message, held));
}

// What takes its time: a model is asked, an order is placed, ... `lost` ends it; the token goes with all that is written.
async function answer(message, { token, lost }) {
  await sleep(message === 'a hard question' ? 60_000 : 20, undefined, { signal: lost });
  return `${message}? (token ${token})`;
}

const server = createServer(async (request, response) => {
  const conversation = request.url.slice(1);
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  try {
    const said = await onMessage(conversation, await text(request), gone.signal);
    response.end(`${said}\n`);
  } catch (error) {
    const why = error.cause ?? error;
    if (!gone.signal.aborted) console.log(`${conversation}: ${why.message}`);
    response.writeHead(503).end(`${why.message}\n`);
  }
});
await once(server.listen(Number(port), '127.0.0.1'), 'listening');
console.log(`listening on ${server.address().port}`);
