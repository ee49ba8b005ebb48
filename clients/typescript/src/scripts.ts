// The commands as scripts, for servers that do not have the module.

import { createHash } from 'node:crypto';
import { LUA } from './lua.js';

const SCRIPTS = new Map(Object.entries(LUA).map(([name, text]) => {
  return [`FAIRLOCK.${name.toUpperCase()}`, { text, sha1: createHash('sha1').update(text).digest('hex') }];
}));

/** The lock's name as part of its other keys and channels. */
export function braced(name: string): string {
  return name.includes('{') ? name : `{${name}}`;
}

/** The script for a command, by its digest and with its text; none for what only the module can do. */
export function scripted([command = '', name = '', owner = '', ...args]: string[]): { short: string[]; whole: string[] } | undefined {
  const script = SCRIPTS.get(command);
  if (!script || neededBy(args)) return undefined;
  const others = ['redisson_lock_queue', 'redisson_lock_timeout', 'fairlock_token'].map((kind) => `${kind}:${braced(name)}`);
  const given = ['4', name, ...others, owner, ...args];
  return { short: ['EVALSHA', script.sha1, ...given], whole: ['EVAL', script.text, ...given] };
}

/** The option that no script has. */
export function neededBy(args: string[]): string | undefined {
  const shared = args.indexOf('SHARED');
  if (shared >= 0) return /^\d/.test(args[shared + 1] ?? '') ? 'limit' : 'shared';
  return args.includes('SESSION') ? 'session' : undefined;
}
