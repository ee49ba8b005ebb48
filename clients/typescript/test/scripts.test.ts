// Rows 49, 52 and 67 to 71: servers that do not have the module.

import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { LockLost, Locks, NoModule, NotInTime, Refused, Unavailable } from '../src/index.js';
import { Refusal } from '../src/errors.js';
import type { Held, LockOptions } from '../src/index.js';
import { clientOf } from './clients.js';
import { AT_ONCE, LONG, aborted, failure, row, runRows } from './harness.js';
import type { Given } from './harness.js';
import { scripted } from '../src/scripts.js';
import { ruleOf, until } from './servers.js';

const CHILD = fileURLToPath(new URL('./child.js', import.meta.url));

/** The warnings that name the server, once all that was emitted before has arrived. */
async function warnings(address: string, work: () => Promise<void>): Promise<string[]> {
  const said: string[] = [];
  const hear = ({ message }: Error) => void said.push(message);
  process.on('warning', hear);
  await work();
  process.emitWarning(`${address}: the last one`);
  await until('all are there', () => said.some((message) => message === `${address}: the last one`));
  process.off('warning', hear);
  return said.filter((message) => message.startsWith(address)).slice(0, -1);
}

for (const [kind, more, isNative] of [['plain', [], false], ['one', ['--with-module'], true]] as const) {
  row(`r67 Locks knows whether there is a module: ${kind}`, [kind, ...more], async ({ locks, servers, name }) => {
    const address = `127.0.0.1:${servers.ports['a']}`;
    const mine = locks();
    assert.equal(mine.native, undefined);
    const said = await warnings(address, async () => {
      for (const _ of [1, 2]) await mine.run(name, ({ token }) => assert.ok(token > 0));
    });
    assert.equal(mine.native, isNative);
    if (isNative) return assert.deepEqual(said, []);
    assert.deepEqual(said, [
      `${address}: the server does not have the fairlock module: locks are taken by scripts. ` +
        'Load it for hand-off, sessions and shared locks, or set module to "required" to refuse',
    ]);
  });
}

async function needsModule({ locks, servers, view, name }: Given, option: string, options: LockOptions): Promise<void> {
  const mine = locks();
  const held = await mine.acquire(name);
  for (const wait of [0, LONG]) {
    const start = performance.now();
    const { code, message } = await failure(mine.acquire(name, { ...options, wait }), NoModule);
    assert.ok(performance.now() - start < AT_ONCE);
    assert.equal(code, 'ERR');
    const what = `${option} needs the fairlock module, which the server does not have (`;
    assert.ok(message.startsWith(`127.0.0.1:${servers.ports['a']}: ${what}`), message);
  }
  assert.deepEqual(await view.queue(name), []);
  await held.release();
}

row('r68 sessions need the module', ['plain'], (given) => needsModule(given, 'session', { session: true }));
row('r68 shared locks need the module', ['plain'], (given) => needsModule(given, 'shared', { shared: true }));
row('r68 limits need the module', ['plain'], (given) => needsModule(given, 'limit', { limit: 2 }));

row('r69 the module is loaded while one holds and two wait', ['plain'], async ({ locks, servers, view, name }) => {
  const mine = locks({ lease: LONG, patience: LONG });
  const held = await mine.acquire(name);
  const waiting: Promise<Held>[] = [];
  for (const count of [1, 2]) {
    waiting.push(mine.acquire(name));
    await view.waits(name, count);
  }
  const owners = await view.queue(name);
  await servers.tell('load', 'a');
  const newer = locks();
  const { owner, token, waiting: queued } = await newer.info(name);
  assert.deepEqual([owner, token, queued], [held.owner, held.token, 2]);
  assert.deepEqual([mine.native, newer.native], [false, true]);
  assert.equal(await held.renew(), LONG);
  await held.release();
  for (const [place, each] of waiting.entries()) {
    const next = await each;
    assert.equal(next.owner, owners[place]);
    await next.release();
  }
  assert.ok(await view.isFree(name));
  // What no script can do is looked for anew; then all connections leave the scripts.
  await mine.run(name, { session: true }, () => {});
  assert.equal(mine.native, true);
  await view.run('SCRIPT', 'FLUSH');
  await mine.run(name, () => {});
  assert.match(String(await view.run('SCRIPT', 'EXISTS', scripted(['FAIRLOCK.ACQUIRE', name])!.short[1]!)), /^0$/);
});

row('r70 a waiter that has died is passed over', ['plain'], async ({ locks, servers, view, name }) => {
  const mine = locks({ patience: LONG });
  const held = await mine.acquire(name, { lease: 6000 });
  const child = fork(CHILD, ['take', servers.url('a'), name], { stdio: ['ignore', 'inherit', 'ignore', 'ipc'] });
  await view.waits(name);
  const waiting = mine.acquire(name);
  await view.waits(name, 2);
  child.kill('SIGKILL');
  await once(child, 'close');
  await held.release();
  const start = performance.now();
  await (await waiting).release();
  assert.ok(performance.now() - start < AT_ONCE);
});

row('r71 a user who may not use the module goes on by scripts', ['plain'], async ({ closing, servers, view, name }) => {
  await view.run(...(await ruleOf('scripts')));
  const make = () => closing(new Locks(clientOf(servers.url('a'), { username: 'scripts', password: 'secret4' }), { patience: LONG }));
  const [mine, lock] = [make(), `app:${name}`];
  const held = await mine.acquire(lock, { lease: 9000 });
  const waiting: Promise<Held>[] = [];
  for (const count of [1, 2]) {
    waiting.push(mine.acquire(lock));
    await view.waits(lock, count);
  }
  await servers.tell('load', 'a');
  // What opens connections: they must not lead the others to the module.
  await view.run('CLIENT', 'KILL', 'USER', 'scripts');
  const others = make();
  await failure(others.acquire(lock, { wait: 0 }), NotInTime);
  await held.renew();
  for (const options of [{ session: true }, { shared: true }]) {
    const { code } = await failure(others.acquire(lock, options), Refused);
    assert.equal(code, 'NOPERM');
  }
  assert.deepEqual([mine.native, others.native], [false, false]);
  await held.release();
  for (const each of waiting) {
    const next = await each;
    await next.renew();
    assert.equal((await mine.info(lock)).owner, next.owner);
    await next.release();
  }
});

test("Upstash's words for an unknown command are understood", () => {
  const said = new Refusal("ERR Command is not available: 'FAIRLOCK.ACQUIRE'. See https://upstash.com/docs", 'here');
  assert.ok(said.isForWantOfModule);
});

row('a server that does not know ROLE is a master', ['plain', '--rename-command', 'ROLE', 'HIDDEN'], async ({ locks, name }) => {
  const held = await locks().acquire(name);
  await held.renew();
  await held.release();
});

for (const [what, cause, words] of [['ends', 'lease', ['PEXPIRE', 1]], ['is broken', 'notheld', ['DEL']]] as const) {
  row(`r49 a lock that ${what} on a plain server is lost, and the next waiter's`, ['plain'], async ({ locks, view, name }) => {
    const mine = locks();
    const held = await mine.acquire(name, { lease: 3000, renew: cause === 'notheld' });
    const waiting = mine.acquire(name);
    await view.waits(name);
    const [verb, ...more] = words;
    await view.run(verb, name, ...more);
    await aborted(held.lost);
    assert.equal(held.lost.reason.cause, cause);
    const second = await waiting;
    await failure(held.release(), LockLost);
    assert.equal(await view.owner(name), second.owner);
    await second.release();
  });
}

row('callers with one owner share its place, and hold the lock together', ['plain'], async ({ locks, view, name }) => {
  const mine = locks({ lease: LONG, patience: LONG });
  const held = await mine.acquire(name);
  const waiting = [1, 2].map(() => mine.acquire(name, { owner: 'me' }));
  await view.waits(name);
  await until('subscribed', async () => (await view.run('PUBSUB', 'CHANNELS')).length === 1);
  const start = performance.now();
  await held.release();
  const [first, second] = await Promise.all(waiting);
  assert.ok(performance.now() - start < AT_ONCE);
  assert.equal(first!.token, second!.token);
  await first!.release();
  await failure(second!.release(), LockLost);
});

row('a server that has forgotten the scripts gets them again', ['plain'], async ({ locks, view, name }) => {
  const mine = locks();
  for (const _ of [1, 2]) {
    const held = await mine.acquire(name);
    await view.run('SCRIPT', 'FLUSH');
    await held.renew();
    await view.run('SCRIPT', 'FLUSH');
    await held.release();
  }
  assert.ok(await view.isFree(name));
});

row('a server whose module is unloaded goes on with scripts', ['one', '--with-module'], async ({ locks, view, name }) => {
  const mine = locks();
  const held = await mine.acquire(name);
  assert.equal(mine.native, true);
  // It is refused while a connection's last command was the module's.
  await until('unloaded', async () => {
    await view.run('CLIENT', 'KILL', 'TYPE', 'normal');
    return view.run('MODULE', 'UNLOAD', 'fairlock').then(() => true, () => false);
  });
  await until('renewed by a script', () => held.renew().catch((error) => {
    if (!(error instanceof Unavailable)) throw error;
    return false;
  }));
  assert.equal(mine.native, false);
  await held.release();
  await mine.run(name, () => {});
  assert.ok(await view.isFree(name));
});

runRows('without the module');
