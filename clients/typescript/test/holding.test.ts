// Rows 01 to 30 and 37 to 46: one server.

import assert from 'node:assert/strict';
import { hostname } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  Closed, FairlockError, LockLost, Locks, NoModule, NotALock, NotInTime, QueueFull, Refused, TakenOver, Unavailable, WrongType,
} from '../src/index.js';
import type { Held, LockEvent, LockOptions } from '../src/index.js';
import { clientOf } from './clients.js';
import { AT_ONCE, LONG, aborted, failure, row, runRows } from './harness.js';
import { SCRIPTS, until } from './servers.js';

row('r01 a free lock is acquired and released', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  const held = await mine.acquire(name);
  assert.ok(held.token > 0);
  assert.equal((await view.info(name))['token'], held.token);
  await held.release();
  assert.ok(await view.isFree(name));
  const second = await mine.acquire(name);
  assert.ok(second.token > held.token);
});

row('r02 leaving the scope or the work releases, also when it fails', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  {
    await using held = await mine.acquire(name);
    assert.equal(await view.owner(name), held.owner);
  }
  assert.ok(await view.isFree(name));
  const own = new Error('its own');
  const work = mine.run(name, {}, async (held) => {
    assert.equal(await view.owner(name), held.owner);
    throw own;
  });
  assert.equal(await failure(work), own);
  assert.ok(await view.isFree(name));
  const scope = async () => {
    await using _held = await mine.acquire(name);
    throw own;
  };
  assert.equal(await failure(scope()), own);
  assert.ok(await view.isFree(name));
  assert.equal(await mine.run(name, {}, () => 7), 7);
});

row('r03 the owner names the machine and is new each time', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  await mine.run(name, {}, async (held) => {
    const [, host, pid] = /^(.*):(\d+):[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.exec((await view.owner(name))!)!;
    assert.equal(host, hostname().replace(/[^A-Za-z0-9._-]/g, '-').slice(0, 200));
    assert.equal(Number(pid), process.pid);
    await failure(mine.acquire(name, { wait: 50 }), NotInTime);
    assert.equal(await view.owner(name), held.owner);
  });
  await mine.run(name, { owner: 'the nightly job' }, async () => {
    assert.equal(await view.owner(name), 'the nightly job');
  });
});

row('r04 no time to wait', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  await mine.run(name, {}, async () => {
    await failure(mine.acquire(name, { wait: 0 }), NotInTime);
    assert.equal(await mine.tryAcquire(name), null);
    assert.deepEqual(await view.queue(name), []);
  });
  assert.ok((await mine.tryAcquire(name))!.token > 0);
});

row('r05 the wait runs out', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  await mine.run(name, {}, async () => {
    const start = performance.now();
    await failure(mine.acquire(name, { wait: 300 }), NotInTime);
    assert.ok(performance.now() - start >= 299);
    assert.deepEqual(await view.queue(name), []);
  });
});

row('r06 first come, first served', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  const first = await mine.acquire(name);
  const waiting: Promise<Held>[] = [];
  for (let count = 1; count <= 3; count++) {
    waiting.push(mine.acquire(name));
    await view.waits(name, count);
  }
  await first.release();
  const tokens: number[] = [];
  for (const each of waiting) {
    const held = await each;
    tokens.push(held.token);
    await held.release();
  }
  assert.deepEqual(tokens, [...new Set(tokens)].sort((a, b) => a - b));
});

row('r07 the next one has it at once', ['one'], async ({ locks, view, name }) => {
  const mine = locks({ lease: LONG, patience: LONG });
  const first = await mine.acquire(name);
  const waiting = mine.acquire(name);
  await view.waits(name);
  // It has subscribed and asked once more.
  await until('subscribed', async () => (await view.run('PUBSUB', 'CHANNELS')).length === 1);
  const start = performance.now();
  await first.release();
  const second = await waiting;
  assert.ok(performance.now() - start < AT_ONCE);
  await second.release();
  await until('unsubscribed', async () => (await view.run('PUBSUB', 'CHANNELS')).length === 0);
});

row("r08 a wait outlives the client's read timeout", ['one'], async ({ closing, servers, view, name }) => {
  const mine = closing(new Locks(clientOf(servers.url('a'), {}, 300)));
  for (const options of [{}, { wait: 60_000 }, { session: !SCRIPTS }]) {
    const held = await mine.acquire(name);
    const waiting = mine.acquire(name, options);
    await view.waits(name);
    await sleep(1000);
    await held.release();
    await (await waiting).release();
  }
});

row('r09 cancelling leaves the queue', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  await mine.run(name, {}, async () => {
    const cancel = new AbortController();
    const waiting = failure(mine.acquire(name, { signal: cancel.signal }));
    await view.waits(name);
    const reason = new Error('enough');
    cancel.abort(reason);
    assert.equal(await waiting, reason);
    assert.deepEqual(await view.queue(name), []);
    assert.equal(await failure(mine.acquire(name, { signal: cancel.signal })), reason);
  });
  assert.ok(await view.isFree(name));
});

row('r10 a grant on its way to one that was cancelled is given back', ['one'], async ({ locks, servers, view, name }) => {
  const mine = locks({ lease: LONG, commandTimeout: 500 }, 'proxy');
  const others = locks();
  const first = await others.acquire(name);
  const cancel = new AbortController();
  const waiting = failure(mine.acquire(name, { signal: cancel.signal }));
  await view.waits(name);
  const [owner] = await view.queue(name);
  // The holder, the first ask, and the one after it has subscribed. Woken, it asks; the answer does not come.
  await until('asked again', async () => (await view.calls('acquire')) >= 3);
  await servers.tell('freeze');
  await first.release();
  await view.fairlock('FAIRLOCK.ACQUIRE', name, owner!, 'ENQUEUE', 'LEASE', LONG, 'ONCE');
  assert.equal(await view.owner(name), owner);
  cancel.abort();
  await waiting;
  await servers.tell('thaw');
  const start = performance.now();
  await until('it is free', () => view.isFree(name));
  assert.ok(performance.now() - start < AT_ONCE);
});

row('r11 the lease is renewed', ['one'], async ({ locks, view, name }) => {
  await locks().run(name, { lease: 9000 }, async (held) => {
    await sleep(19_000);
    assert.equal((await view.info(name))['token'], held.token);
    assert.ok(!held.lost.aborted);
  });
});

row('r12 without renewal the lease ends', ['one'], async ({ locks, view, name }) => {
  const start = performance.now();
  const held = await locks().acquire(name, { lease: 400, renew: false });
  await aborted(held.lost);
  assert.ok(performance.now() - start >= 390);
  assert.equal(held.lost.reason.cause, 'lease');
  await until('it is free', () => view.isFree(name));
});

row('r13 renew sets the lease', ['one'], async ({ locks, view, name }) => {
  const mine = locks({ lease: 30_000 });
  await mine.run(name, {}, async (held) => {
    assert.equal(await held.renew(90_000), 90_000);
    assert.ok((await view.info(name))['lease'] > 80_000);
  });
  await mine.run(name, { renew: false }, async (held) => {
    assert.equal(await held.renew(), 30_000);
    const { lease } = await view.info(name);
    assert.ok(lease > 20_000 && lease <= 30_000);
  });
});

row('r14 nothing is left after the release', ['one'], async ({ locks, view, name }) => {
  const held = await locks().acquire(name, { lease: 9000 });
  await until('renewed', async () => (await view.calls('renew')) > 1);
  await held.release();
  const renewals = await view.calls('renew');
  await sleep(6300);
  assert.equal(await view.calls('renew'), renewals);
});

row('r16 a lock that is broken is lost', ['one'], async ({ locks, view, name }) => {
  const held = await locks().acquire(name, { lease: 6000 });
  await view.fairlock('FAIRLOCK.BREAK', name);
  await aborted(held.lost);
  assert.equal(held.lost.reason.cause, 'notheld');
  const lost = await failure(held.release(), LockLost);
  assert.equal(lost.cause, 'notheld');
  assert.equal(lost.code, 'NOTHELD');
});

row('r17 the lock of another is left alone', ['one'], async ({ locks, view, name }) => {
  const held = await locks().acquire(name, { lease: 6000 });
  await view.run('DEL', name);
  const token = await view.fairlock('FAIRLOCK.ACQUIRE', name, 'another', 'NOWAIT');
  await aborted(held.lost);
  assert.equal(held.lost.reason.cause, 'notheld');
  await failure(held.release(), LockLost);
  assert.equal((await view.info(name))['token'], token);
});

row('r18 a server that is silent', ['one'], async ({ locks, servers, name }) => {
  const held = await locks({ commandTimeout: 1000 }, 'proxy').acquire(name, { lease: 1500 });
  const start = performance.now();
  await servers.tell('freeze');
  await aborted(held.lost);
  assert.equal(held.lost.reason.cause, 'lease');
  // The last renewal may have been answered just before.
  assert.ok(performance.now() - start < 1500 + AT_ONCE);
  await servers.tell('thaw');
});

for (const [isBlocked, renew] of [[true, true], [true, false], [false, true], [false, false]] as const) {
  const title = `a grant that arrives when its lease is over is none, ${isBlocked ? 'blocked' : 'at once'}, ${renew ? 'renewed' : 'not renewed'}`;
  row(title, ['one'], async ({ locks, servers, view, name }) => {
    const slow = locks({ commandTimeout: 30_000 }, 'proxy');
    await (await slow.acquire('another')).release(); // The connections are there.
    const options = { lease: 1000, renew, ...(isBlocked ? { owner: 'me' } : {}) };
    let isDone = false;
    const begin = () => slow.acquire(name, options).finally(() => (isDone = true));
    let waiting: Promise<Held>;
    if (isBlocked) {
      await view.fairlock('FAIRLOCK.ACQUIRE', name, 'first', 'LEASE', LONG);
      waiting = begin();
      await until('it is blocked', async () => (await view.run('FAIRLOCK.QUEUE', name))[0]?.[1] === 'blocked');
      await servers.tell('freeze');
      await view.fairlock('FAIRLOCK.RELEASE', name, 'first');
    } else {
      await servers.tell('freeze');
      const before = await view.calls('acquire');
      waiting = begin();
      await until('granted', async () => (await view.calls('acquire')) > before);
    }
    // Another gets the lock after that lease.
    const token = await view.fairlock('FAIRLOCK.ACQUIRE', name, 'second', 'LEASE', LONG);
    await servers.tell('thaw');
    await until('it waits again, or takes itself for the holder', async () => isDone || (await view.queue(name)).length > 0);
    assert.ok(!isDone);
    await view.fairlock('FAIRLOCK.RELEASE', name, 'second');
    const held = await waiting;
    assert.ok(held.token > token && !held.lost.aborted);
    await held.release();
  });
}

row('r19 a lost lock is not renewed', ['one'], async ({ locks, name }) => {
  const held = await locks().acquire(name, { lease: 200, renew: false });
  await aborted(held.lost);
  assert.equal((await failure(held.renew(), LockLost)).cause, 'lease');
});

row('r24 waiters do not keep the holder from releasing', ['one'], async ({ locks, view, name }) => {
  const mine = locks({ lease: LONG });
  const held = await mine.acquire(name);
  const waiting = Array.from({ length: 10 }, async () => (await mine.acquire(name)).release());
  await view.waits(name, 10);
  await held.release();
  await Promise.all(waiting);
  assert.ok(await view.isFree(name));
});

row("r25 a failing release does not hide the work's error", ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  const own = new Error('its own');
  const work = mine.run(name, {}, async () => {
    await view.fairlock('FAIRLOCK.BREAK', name);
    throw own;
  });
  assert.equal(await failure(work), own);
  const scope = async () => {
    await using _held = await mine.acquire(name);
    await view.fairlock('FAIRLOCK.BREAK', name);
    throw own;
  };
  // The language's error for two errors at the end of a scope.
  const both = (await failure(scope())) as Error & { suppressed: unknown; error: unknown };
  assert.equal(both.suppressed, own);
  assert.ok(both.error instanceof LockLost);
});

row('r26 a lost lock is told at the end', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  await failure(mine.run(name, {}, () => view.fairlock('FAIRLOCK.BREAK', name)), LockLost);
  const held = await mine.acquire(name);
  await held.release();
  const other = await mine.acquire(name);
  await held.release();
  assert.equal(await view.owner(name), other.owner);
});

row('r27 the reply to RELEASE is lost', ['one'], async ({ locks, servers, view, name }) => {
  const held = await locks({}, 'proxy').acquire(name);
  await servers.tell('lose', 'FAIRLOCK.RELEASE');
  await held.release();
  assert.equal(await servers.tell('lost'), '1');
  assert.ok(await view.isFree(name));
});

for (const isTaken of [false, true]) {
  row(`r28 the reply to ACQUIRE is lost while the lock is ${isTaken ? 'taken' : 'free'}`, ['one'], async ({ locks, servers, view, name }) => {
    const mine = locks({ lease: LONG, patience: LONG }, 'proxy');
    if (isTaken) await view.fairlock('FAIRLOCK.ACQUIRE', name, 'another', 'NOWAIT');
    else await servers.tell('lose', 'ENQUEUE');
    const waiting = mine.acquire(name);
    if (isTaken) {
      // The holder, the first ask, and the one after it has subscribed.
      await until('asked again', async () => (await view.calls('acquire')) >= 3);
      await servers.tell('lose', 'ENQUEUE');
      await view.fairlock('FAIRLOCK.RELEASE', name, 'another');
    }
    const held = await waiting;
    assert.equal(await servers.tell('lost'), '1');
    const { holds, owner, token } = await view.info(name);
    assert.deepEqual([holds, owner, token], [1, held.owner, held.token]);
    await held.release();
    assert.ok(await view.isFree(name));
  });
}

row('r28 the reply to ACQUIRE is lost, and the next ask refused', ['one'], async ({ locks, servers, view, name }) => {
  const mine = locks({ lease: LONG, syncTimeout: 0 }, 'proxy');
  await (await mine.acquire(name)).release();
  await servers.tell('freeze');
  const refused = failure(mine.acquire(name), Refused);
  await until('the server has granted it', async () => !(await view.isFree(name)));
  await view.run('CONFIG', 'SET', 'maxmemory', 1);
  for (const command of ['cut', 'thaw', 'mend']) await servers.tell(command);
  assert.equal((await refused).code, 'OOM');
  await until('it is free', () => view.isFree(name));
});

row('r29 connections are cut while a caller waits', ['one'], async ({ locks, servers, view, name }) => {
  await view.fairlock('FAIRLOCK.ACQUIRE', name, 'another', 'NOWAIT');
  const waiting = locks({}, 'proxy').acquire(name);
  await view.waits(name);
  await servers.tell('cut');
  await until('its connections are gone', async () => (await view.clients()).length === 0);
  await servers.tell('mend');
  await view.fairlock('FAIRLOCK.RELEASE', name, 'another');
  await (await waiting).release();
});

row('r30 a server is killed and started again while callers wait', ['one'], async ({ locks, servers, view, name }) => {
  await view.fairlock('FAIRLOCK.ACQUIRE', name, 'another', 'LEASE', LONG, 'NOWAIT');
  const mine = locks({ patience: LONG });
  const waiting: Promise<Held>[] = [];
  for (const count of [1, 2]) {
    waiting.push(mine.acquire(name));
    await view.waits(name, count);
  }
  const owners = await view.queue(name);
  const asked = () => view.calls('acquire').catch(() => 0);
  // The server returns with the state that the file has by then.
  await view.run('CONFIG', 'SET', 'appendfsync', 'always');
  await servers.tell('kill', 'a');
  await servers.tell('start', 'a');
  await until('both have asked', async () => (await asked()) >= 2);
  await view.waits(name, 2);
  await view.fairlock('FAIRLOCK.RELEASE', name, 'another');
  for (const [place, each] of waiting.entries()) {
    const held = await each;
    assert.equal(held.owner, owners[place]);
    await held.release();
  }
});

row('r37 the same caller holds it again', ['one'], async ({ locks, view, name }) => {
  const mine = locks({ reentrant: true });
  await mine.run(name, {}, async (outer) => {
    await mine.run(name, {}, async (inner) => {
      assert.equal(inner, outer);
    });
    const again = await mine.acquire(name);
    assert.equal(again.token, outer.token);
    await again.release();
    assert.equal(await view.owner(name), outer.owner);
  });
  assert.ok(await view.isFree(name));
  const outer = mine.run(name, {}, () => view.waits(name));
  await until('held', async () => !(await view.isFree(name)));
  await mine.run(name, {}, () => {});
  await outer;
});

row('r38 not reentrant unless asked', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  await mine.run(name, {}, () => failure(mine.acquire(name, { wait: 50 }), NotInTime));
  assert.ok(await view.isFree(name));
});

row('r39 hooks', ['one'], async ({ locks, view, name }) => {
  let told: [string, LockEvent][] = [];
  const hook = (which: string) => (event: LockEvent) => void told.push([which, event]);
  const hooks = { onWait: hook('wait'), onAcquired: hook('acquired'), onLost: hook('lost'), onReleased: hook('released') };
  const mine = locks({ hooks });
  const first = await mine.acquire(name);
  const waiting = mine.acquire(name);
  await view.waits(name);
  await first.release();
  const second = await waiting;
  const of = (owner: string) => told.filter(([, event]) => event.owner === owner).map(([which]) => which);
  assert.deepEqual(of(first.owner), ['acquired', 'released']);
  assert.deepEqual(of(second.owner), ['wait', 'acquired']);
  assert.ok(told.every(([, event]) => event.name === name));
  const acquired = told.find(([which, event]) => which === 'acquired' && event.owner === second.owner)![1];
  assert.ok(acquired.token === second.token && acquired.waited! > 0);
  const released = told.find(([which]) => which === 'released')![1];
  assert.ok(released.token === first.token && released.held! > 0);
  told = [];
  await view.fairlock('FAIRLOCK.BREAK', name);
  await failure(second.renew(), LockLost);
  await failure(second.release(), LockLost);
  assert.deepEqual(told.map(([which, { cause, token }]) => [which, cause, token]), [['lost', 'notheld', second.token]]);
});

row('r40 a hook that fails disturbs nothing', ['one'], async ({ locks, view, name }) => {
  const fail = () => {
    throw new Error('a hook');
  };
  let warnings = 0;
  const count = (warning: Error) => void (warnings += warning.message.includes('a hook') ? 1 : 0);
  process.on('warning', count);
  const mine = locks({ hooks: { onWait: fail, onAcquired: fail, onReleased: fail } });
  const first = await mine.acquire(name);
  const waiting = mine.acquire(name);
  await view.waits(name);
  await first.release();
  await (await waiting).release();
  assert.ok(await view.isFree(name));
  await until('all have failed', () => warnings === 5);
  process.off('warning', count);
});

row('r41 a server without the module', ['plain'], async ({ locks, servers, name }) => {
  const start = performance.now();
  const { message } = await failure(locks({ module: 'required' }).acquire(name), NoModule);
  assert.ok(performance.now() - start < AT_ONCE);
  assert.ok(message.startsWith(`127.0.0.1:${servers.ports['a']}: the server does not have the fairlock module`), message);
  assert.ok(message.includes('loadmodule /path/to/libfairlock.so') && message.includes('docs/operations.md'));
  assert.ok(!message.includes('\n'));
});

if (!SCRIPTS) {
  row('r42 a queue that is full', ['one', '--fairlock.max-waiters', '1'], async ({ locks, view, name }) => {
    const mine = locks();
    const held = await mine.acquire(name);
    const waiting = mine.acquire(name);
    await view.waits(name);
    const full = await failure(mine.acquire(name), QueueFull);
    assert.equal(full.code, 'QUEUEFULL');
    assert.ok(full.message.startsWith('QUEUEFULL'));
    await held.release();
    await (await waiting).release();
  });
}

row('r42 refusals are typed', ['one'], async ({ locks, view }) => {
  const mine = locks();
  await view.run('SET', 'text', 'hello');
  const wrong = await failure(mine.acquire('text'), WrongType);
  assert.equal(wrong.code, 'WRONGTYPE');
  assert.ok(wrong.message.includes('wrong kind of value'));
  await view.run('HSET', 'person', 'name', 'Ann');
  const none = await failure(mine.acquire('person'), NotALock);
  assert.equal(none.code, 'NOTALOCK');
  assert.ok(none instanceof FairlockError && none.message.startsWith('NOTALOCK'));
});

for (const more of [{}, { session: true }] as LockOptions[]) {
  row(`r43 one owner has one place${more.session ? ', as a session' : ''}`, ['one'], async ({ locks, view, name }) => {
    const mine = locks();
    const held = await mine.acquire(name);
    const first = failure(mine.acquire(name, { owner: 'me', ...more }), TakenOver);
    await view.waits(name);
    await until('blocked', async () => (await view.run('FAIRLOCK.QUEUE', name))[0][1] === 'blocked');
    const second = mine.acquire(name, { owner: 'me', ...more });
    assert.equal((await first).code, 'TAKENOVER');
    assert.deepEqual(await view.queue(name), ['me']);
    await held.release();
    await (await second).release();
  });
}

row('r44 a server that is not there', ['one'], async ({ locks, servers, name }) => {
  await servers.tell('kill', 'a');
  const error = await failure(locks({ retryTimeout: 300 }).acquire(name), Unavailable);
  assert.ok(error.cause instanceof Error);
  const waiting = locks().acquire(name);
  await sleep(200);
  await servers.tell('start', 'a');
  await (await waiting).release();
});

row('r45 arguments are checked before anything is sent', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  const wrong = [
    { lease: 0 }, { lease: -1 }, { lease: NaN }, { wait: -1 }, { limit: 0 }, { limit: 1_000_001 }, { limit: 1.5 }, { owner: '' },
    { owner: 'x'.repeat(257) }, { syncTimeout: -1 },
  ];
  for (const options of wrong) await failure(mine.acquire(name, options), RangeError);
  assert.deepEqual(await view.clients(), []);
});

row('r46 closing', ['one'], async ({ locks, view, name }) => {
  const mine = locks();
  const held = await mine.acquire(name);
  const waiting = failure(mine.acquire(name), Closed);
  await view.waits(name);
  await mine.close();
  await waiting;
  assert.deepEqual(await view.queue(name), []);
  assert.equal(held.lost.reason.cause, 'closed');
  await until('all connections are closed', async () => (await view.clients()).length === 0);
  await failure(mine.acquire(name), Closed);
});

runRows('one server');
