// At most N at a time, on all machines together: a limited lock.
//
//     scripts/clients/typescript run examples/node/at-most.mjs [redis://127.0.0.1:6379] [LIMIT] [JOBS]
//
// Some jobs ask for a place among LIMIT, first come, first served; each counts how many work beside it.

import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';
import { Locks } from 'fairlock';

const [url = 'redis://127.0.0.1:6379', limit = '3', jobs = '12'] = process.argv.slice(2);
const client = await createClient({ url }).connect();
const locks = new Locks(client, { limit: Number(limit), lease: 10_000 });
let most = 0;

async function job() {
  await locks.run('downloads', async () => {
    most = Math.max(most, await client.incr('downloads:now'));
    await sleep(20);
    await client.decr('downloads:now');
  });
}

await Promise.all(Array.from({ length: Number(jobs) }, job));
console.log(`${jobs} jobs, at most ${most} at a time`);
await locks.close();
client.destroy();
