// What all tests here share.

import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Locks } from '../src/index.js';
import type { LocksOptions } from '../src/index.js';
import { clientOf } from './clients.js';
import { Servers } from './servers.js';
import type { View } from './servers.js';

export const AT_ONCE = 20_000; // ms, where the alternative is a minute
export const LONG = 120_000;
const LONGEST = 150_000; // of one test; its servers are ended then, too
let numbers = 0;

export interface Given {
  servers: Servers;
  view: View;
  name: string;
  /** Locks at a server or the proxy, closed at the end of the test. */
  locks(options?: LocksOptions, at?: string): Locks;
  /** Closed at the end of the test. */
  closing<T extends { close(): Promise<void> }>(locks: T): T;
}

interface Row {
  title: string;
  work: () => Promise<void>;
}
const rows: Row[] = [];

/** Runs the rows of a file side by side, a few at a time. */
export function runRows(file: string): void {
  describe(file, { concurrency: 6 }, () => {
    for (const { title, work } of rows.splice(0)) it(title, work);
  });
}

/** A test with servers of its own; `runRows` at the end of a file runs them. */
export function row(title: string, kind: string[], work: (given: Given) => Promise<void>): void {
  const test = async () => {
    const servers = await Servers.start(...kind);
    const opened: { close(): Promise<void> }[] = [];
    const over = new AbortController();
    try {
      const closing = <T extends { close(): Promise<void> }>(made: T): T => {
        opened.push(made);
        return made;
      };
      const locks = (options: LocksOptions = {}, at = 'a') =>
        closing(new Locks(clientOf(servers.url(at)), options));
      const view = await servers.view('a');
      const done = work({ servers, view, name: `lock:${++numbers}`, locks, closing });
      const late = sleep(LONGEST, undefined, { signal: over.signal }).then(() => assert.fail('it takes too long'));
      late.catch(() => {});
      await Promise.race([done, late]);
    } finally {
      over.abort();
      for (const each of opened) await each.close();
      await servers.end();
    }
  };
  rows.push({ title, work: test });
}

/** The error that a promise is rejected with. */
export async function failure<T extends Error>(promise: Promise<unknown>, kind?: abstract new (...args: any[]) => T): Promise<T> {
  let error: unknown;
  try {
    await promise;
  } catch (caught) {
    error = caught;
    if (kind) assert.ok(caught instanceof kind, `another error: ${String(caught)}`);
    return caught as T;
  }
  assert.fail(`no failure: ${String(error)}`);
}

export function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve();
    else signal.addEventListener('abort', () => resolve());
  });
}
