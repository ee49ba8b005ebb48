// The protocol, without a server.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Failure, LockLost, NotInTime, Unavailable } from '../src/errors.js';
import { optionsOfLock, optionsOfLocks } from '../src/options.js';
import type { LockOptions, LocksOptions } from '../src/options.js';
import { Ask, acquiring, keeping, leaving, releasing } from '../src/protocol.js';
import type { Answer, Kept, Protocol, Step } from '../src/protocol.js';

/** Plays a protocol against what servers say: a reply (or whether a message came), a failure, after some time. */
function play<T>(protocol: Protocol<T>, clock: { time: number }, ...script: [string, unknown, number?][]): { result: T; steps: Step[] } {
  const steps: Step[] = [];
  let step = protocol.next();
  for (const [expected, reply, takes = 0] of script) {
    assert.ok(!step.done, `it has ended before ${expected}`);
    const its = step.value;
    steps.push(its);
    assert.equal(its.do === 'send' ? its.words[0]!.replace('FAIRLOCK.', '') : its.do, expected);
    const sent = clock.time;
    clock.time += its.do === 'pause' && !reply ? its.longest : takes;
    const answer: Answer = { reply, isConfirmed: reply !== 'unconfirmed', sent, at: clock.time, address: 'here' };
    if (reply === 'unconfirmed') answer.reply = 7;
    step = reply instanceof Error ? protocol.throw(reply) : protocol.next(answer);
  }
  assert.ok(step.done, `it goes on: ${JSON.stringify(step.value)}`);
  return { result: step.value, steps };
}

const said = (text: string) => new Failure(new Error(text), 'here');
const LOST = 'Socket closed unexpectedly';

function asking(given: LockOptions & LocksOptions = {}, isHeard = false): { ask: Ask; clock: { time: number } } {
  const clock = { time: 0 };
  const options = optionsOfLock({}, optionsOfLocks(given));
  const ask: Ask = new Ask('a', 'me', options, () => clock.time, () => 0, () => isHeard || !(isHeard = true), () => {});
  return { ask, clock };
}

function holding(given: LocksOptions = {}): { kept: Kept; clock: { time: number } } {
  const { ask, clock } = asking(given);
  return { clock, kept: play(acquiring(ask), clock, ['ACQUIRE', 7]).result };
}

test('a waiter listens, asks again, and pauses until it is woken', () => {
  const { ask, clock } = asking();
  const { result } = play(acquiring(ask), clock, ['ACQUIRE', [1, 5000]], ['listen', null], ['ACQUIRE', [1, 5000]], ['pause', true, 10], ['ACQUIRE', 7]);
  assert.equal(result.token, 7);
  assert.equal(result.end, 10 + 30_000);
});

test('after a pause without a message it makes sure that it is heard', () => {
  const { ask, clock } = asking({}, true);
  play(acquiring(ask), clock, ['ACQUIRE', [1, 5000]], ['pause', false], ['listen', null], ['ACQUIRE', 7]);
});

test('a late grant is renewed before it is given out', () => {
  const { ask, clock } = asking();
  const { result } = play(acquiring(ask), clock, ['ACQUIRE', 7, 12_000], ['RENEW', 30_000]);
  assert.equal(result.end, 12_000 + 30_000);
  const other = asking();
  play(acquiring(other.ask), other.clock, ['ACQUIRE', 7, 40_000], ['RENEW', said('NOTHELD no')], ['pause', false], ['ACQUIRE', 8]);
});

test('what too few replicas have is released', () => {
  const { ask, clock } = asking();
  play(acquiring(ask), clock, ['ACQUIRE', 'unconfirmed'], ['RELEASE', 0], ['pause', false], ['ACQUIRE', 8]);
});

test('passing failures are asked again for a time, others are thrown', () => {
  const { ask, clock } = asking({ retryTimeout: 100 });
  const failures = ['BUSY a script', 'LOADING it', 'ERR max number of clients reached'].flatMap((text) => [['ACQUIRE', said(text)], ['pause', false]]);
  const script = failures.slice(0, 4) as [string, unknown][];
  assert.throws(() => play(acquiring(ask), clock, ...script, ['ACQUIRE', said(LOST)]), Unavailable);
  assert.ok(ask.isUnheard);
  assert.throws(() => play(acquiring(asking().ask), clock, ['ACQUIRE', said('OOM full')]), { name: 'Refused', code: 'OOM' });
  assert.throws(() => play(acquiring(asking({ wait: 0 }).ask), clock, ['ACQUIRE', null]), NotInTime);
});

test('leaving releases what a lost ask may have brought; only CANCEL 1 is clean', () => {
  const { ask, clock } = asking();
  assert.equal(play(leaving(ask), clock, ['CANCEL', 1]).result, true);
  assert.equal(play(leaving(ask), clock, ['CANCEL', said(LOST)], ['pause', false], ['CANCEL', 0], ['RELEASE', said('NOTHELD no')]).result, false);
  const given = asking({ owner: 'me' });
  assert.equal(play(leaving(given.ask), clock, ['CANCEL', 0]).result, false);
});

test('a hold is renewed at a third of its lease, a failure tried again, until the lease is over', () => {
  const { kept, clock } = holding();
  const tries = Array.from({ length: 7 }, () => [['RENEW', said(LOST)], ['pause', false]]).flat() as [string, unknown][];
  const { result, steps } = play(keeping(kept), clock, ['pause', false], ['RENEW', 30_000], ['pause', false], ...tries);
  assert.equal(result, 'lease');
  assert.deepEqual(steps.slice(0, 5).map((step) => step.do === 'pause' && step.longest), [10_000, false, 10_000, false, 3000]);
});

test('NOTHELD at a release is a loss at first, and success if an earlier one may have arrived', () => {
  const { kept, clock } = holding();
  assert.throws(() => play(releasing(kept), clock, ['RELEASE', said('NOTHELD no')]), LockLost);
  assert.equal(play(releasing(kept), clock, ['RELEASE', 0]).result, true);
  assert.equal(play(releasing(kept), clock, ['RELEASE', said(LOST)], ['pause', false], ['RELEASE', said('NOTHELD no')]).result, false);
  assert.throws(() => play(releasing(kept), clock, ['RELEASE', said('BUSY a script')], ['pause', false], ['RELEASE', said('NOTHELD no')]), LockLost);
});
