// Row 53: the programs of the README.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { Servers } from './servers.js';

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

test('r53 the programs of the README run', async () => {
  const servers = await Servers.start('one');
  try {
    const text = await readFile('README.md', 'utf8');
    const program = /```js\n([^]*?)```/.exec(text)![1]!;
    const promised = /It prints [^]*?\n\n((?: {4}.*\n)+)/.exec(text)![1]!.replace(/^ {4}/gm, '');
    // A reader's server has the usual port.
    const said = await run(program.replace('createClient()', `createClient({ url: '${servers.url('a')}' })`));
    assert.match(said, new RegExp(`^${promised.replace(/\d{16}/, '\\d{16}')}$`));
    const fake = text.slice(text.indexOf('## Tests'));
    assert.equal(await run(/```js\n([^]*?)```/.exec(fake)![1]!), 'true\nLockLost\n');
  } finally {
    await servers.end();
  }
});
