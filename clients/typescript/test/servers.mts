// A server for a test, by clients/conformance/server. The rows of the table are tested by clients/conformance.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import type { TestContext } from 'node:test';
import { createClient } from 'redis';
import { Locks } from '../src/index.mjs';

const PROGRAM = process.env['FAIRLOCK_SERVERS'] ?? '../conformance/server';
const LONGEST = 60_000; // until a condition is given up

export async function until(what: string, condition: () => Promise<unknown>): Promise<void> {
  for (const end = performance.now() + LONGEST; !(await condition()); await sleep(5)) {
    if (performance.now() > end) throw new Error(`still not so: ${what}`);
  }
}

/** A server that ends with the test: its URL, and a Locks. */
export async function one(test: TestContext, options = {}): Promise<{ url: string; locks: Locks }> {
  const servers = spawn(PROGRAM, { stdio: ['pipe', 'pipe', 'inherit'] });
  const [port] = await once(createInterface(servers.stdout), 'line');
  const url = `redis://127.0.0.1:${port}`;
  const client = await createClient({ ...options, url }).connect();
  const locks = new Locks(client);
  test.after(async () => {
    await locks.close();
    client.destroy();
    servers.stdin.end();
    await once(servers, 'close');
  });
  return { url, locks };
}
