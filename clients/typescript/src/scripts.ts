// The commands as scripts, for servers that do not have the module.

import { createHash } from 'node:crypto';
import type { LockInfo } from './commands.js';
import type { Line } from './line.js';
import { LUA } from './lua.js';

/** The scripts by command. */
const SCRIPTS = new Map(Object.entries(LUA).map(([name, text]) => {
  return [`FAIRLOCK.${name.toUpperCase()}`, { text, sha1: createHash('sha1').update(text).digest('hex') }];
}));

/** The lock's name as part of its other keys and channels. */
export function braced(name: string): string {
  return name.includes('{') ? name : `{${name}}`;
}

/** The script for a command: by its digest, and with its text. */
export function scripted([command = '', name = '', ...args]: string[]): { short: string[]; whole: string[] } | undefined {
  const script = SCRIPTS.get(command);
  if (!script) return undefined;
  const others = ['redisson_lock_queue', 'redisson_lock_timeout', 'fairlock_token'].map((kind) => `${kind}:${braced(name)}`);
  const given = ['4', name, ...others, ...args];
  return { short: ['EVALSHA', script.sha1, ...given], whole: ['EVAL', script.text, ...given] };
}

/** The reply of FAIRLOCK.INFO, from the lock's keys. */
export async function infoByKeys(line: Line, name: string, isAsking: boolean): Promise<LockInfo> {
  const reads = [['HGETALL', name], ['PTTL', name], ['LLEN', `redisson_lock_queue:${braced(name)}`]];
  const replies = await Promise.all(reads.map((words) => line.call(words, undefined, isAsking)));
  const [fields, lease, waiting] = replies as [string[], number, number];
  let token: number | null = null;
  const holders: [string, number][] = [];
  for (let at = 0; at < fields.length; at += 2) {
    const [field, value] = [fields[at]!, Number(fields[at + 1])];
    // No owner has the empty name.
    if (field === '') token = value;
    else holders.push([field, value]);
  }
  const [owner, holds] = holders[0] ?? [null, 0];
  const isHeld = owner !== null;
  return { owner, holds, lease: isHeld ? Math.max(lease, -1) : 0, token, session: false, waiting, holders: holders.length, limit: isHeld ? 1 : 0 };
}
