// The server that scripts/clients/typescript starts. The rows of the table are tested by clients/conformance.

import { setTimeout as sleep } from 'node:timers/promises';
import type { TestContext } from 'node:test';
import { createClient } from 'redis';
import { Locks } from '../src/index.mjs';

const ADDRESS = `redis://127.0.0.1:${process.env['FAIRLOCK_PORT']}`;
const LONGEST = 60_000; // until a condition is given up

export async function until(what: string, condition: () => Promise<unknown>): Promise<void> {
  for (const end = performance.now() + LONGEST; !(await condition()); await sleep(5)) {
    if (performance.now() > end) throw new Error(`still not so: ${what}`);
  }
}

/** The server, which is empty: its URL, and a Locks. */
export async function one(test: TestContext): Promise<{ url: string; locks: Locks }> {
  const client = await createClient({ url: ADDRESS }).connect();
  await client.flushAll();
  const locks = new Locks(client);
  test.after(async () => {
    await locks.close();
    client.destroy();
  });
  return { url: ADDRESS, locks };
}
