// Leader election with a session.
//
//     scripts/clients/typescript run examples/node/leader.mjs [redis://127.0.0.1:6379] [NAME]
//
// Start several. One leads; if it dies, is stopped for longer than its connection lives, or ends, the next one leads at
// once: the server frees the lock with the connection. Ctrl-C resigns.

import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';
import { LockLost, Locks } from 'fairlock';

const [url = 'redis://127.0.0.1:6379', name = `process ${process.pid}`] = process.argv.slice(2);
const client = await createClient({ url }).connect();
const locks = new Locks(client);
const resign = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => resign.abort());

// What only the leader does, until it is told that it leads no more.
async function lead(token, stop) {
  console.log(`${name} leads, token ${token}`);
  while (!stop.aborted) {
    await sleep(1000, undefined, { signal: stop }).catch(() => {});
  }
}

while (!resign.signal.aborted) {
  try {
    await locks.run('leader', { session: true, lease: 5000, signal: resign.signal }, async (held) => {
      const stop = new AbortController();
      for (const signal of [held.lost, resign.signal]) signal.addEventListener('abort', () => stop.abort());
      await lead(held.token, stop.signal);
    });
    console.log(`${name} has resigned`);
  } catch (error) {
    if (resign.signal.aborted) break;
    if (!(error instanceof LockLost)) throw error;
    console.log(`${name} leads no more: ${error.cause}`);
  }
}
await locks.close();
client.destroy();
