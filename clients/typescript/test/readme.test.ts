// The programs of the README.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { one } from './servers.js';

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

/** Runs a program beside the built package, as if that were installed. */
async function run(program: string): Promise<string> {
  const folder = await mkdtemp('./readme-');
  try {
    await writeFile(`${folder}/first.mjs`, program);
    const { stdout } = await promisify(execFile)(process.execPath, [`${folder}/first.mjs`], { timeout: 60_000 });
    return stdout;
  } finally {
    await rm(folder, { recursive: true });
  }
}

test('the programs of the README run', async (t) => {
  const { url } = await one(t);
  const text = await readFile('README.md', 'utf8');
  const program = /```js\n([^]*?)```/.exec(text)![1]!;
  const promised = /It prints [^]*?\n\n((?: {4}.*\n)+)/.exec(text)![1]!.replace(/^ {4}/gm, '');
  // A reader's server has the usual port.
  const said = await run(program.replace('createClient()', `createClient({ url: '${url}' })`));
  assert.match(said, new RegExp(`^${promised.replace(/\d{16}/, '\\d{16}')}$`));
});

test('tests of programs need a server, and no module', async () => {
  const text = await readFile('README.md', 'utf8');
  const program = /```js\n([^]*?)```/.exec(text.slice(text.indexOf('## Tests')))![1]!;
  const [, first, second] = /It prints `(null)`, then `(LockLost .*?)`/.exec(text)!;
  const port = await freePort();
  assert.equal(await run(program.replaceAll('6390', String(port))), `${first}\n${second}\n`);
});
