// Servers for a test, by clients/testing/servers; and plain clients that look at them.

import { spawn } from 'node:child_process';
import type { ChildProcessByStdio } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { createClient } from 'redis';
import { scripted } from '../src/scripts.js';

/** The servers are without the module. */
export const SCRIPTS = Boolean(process.env['FAIRLOCK_SCRIPTS']);
export const PROGRAM = process.env['FAIRLOCK_SERVERS'] ?? '../testing/servers';
/** Until a condition is given up; only ever reached on failure. */
const LONGEST = 60_000;

/** The command of SECURITY.md that makes a user. */
export async function ruleOf(user: string): Promise<string[]> {
  const page = await readFile(new URL('../../SECURITY.md', `file://${PROGRAM}`), 'utf8');
  return new RegExp(`ACL SETUSER ${user} .*`).exec(page)![0].split(' ');
}

export async function until(what: string, condition: () => Promise<unknown> | unknown): Promise<void> {
  const end = performance.now() + LONGEST;
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`still not so: ${what}`);
    await sleep(5);
  }
}

export class Servers {
  readonly ports: Record<string, number> = {};
  readonly #views: View[] = [];
  readonly #process: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string>;

  private constructor(args: string[]) {
    this.#process = spawn(PROGRAM, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#lines = createInterface(this.#process.stdout)[Symbol.asyncIterator]();
  }

  static async start(...args: string[]): Promise<Servers> {
    // To count scripts: see View.calls.
    const servers = new Servers([...args, '--slowlog-log-slower-than', '0', '--slowlog-max-len', '100000']);
    for (;;) {
      const line = await servers.#line();
      if (line === 'ready') return servers;
      const [name, port] = line.split(' ');
      servers.ports[name!] = Number(port);
    }
  }

  async #line(): Promise<string> {
    const { value, done } = await this.#lines.next();
    if (done) throw new Error('no servers: see standard error');
    return value;
  }

  async tell(...words: (string | number)[]): Promise<string> {
    this.#process.stdin.write(`${words.join(' ')}\n`);
    const answer = await this.#line();
    if (!answer.startsWith('ok')) throw new Error(answer);
    return answer.slice(3);
  }

  url(name: string): string {
    return `redis://127.0.0.1:${this.ports[name]}`;
  }

  async view(name: string): Promise<View> {
    const view = await View.of(this.url(name));
    this.#views.push(view);
    return view;
  }

  async end(): Promise<void> {
    for (const view of this.#views) view.end();
    const ended = once(this.#process, 'close');
    this.#process.stdin.end();
    await ended;
  }
}

/** What a server has to say about its locks. */
export class View {
  private constructor(readonly client: ReturnType<typeof createClient>) {}

  static async of(url: string): Promise<View> {
    const client = createClient({ url });
    client.on('error', () => {});
    await client.connect();
    return new View(client);
  }

  run(...words: (string | number)[]): Promise<any> {
    return this.client.sendCommand(words.map(String));
  }

  /** A command of the module, or its equivalent without the module. */
  async fairlock(...words: (string | number)[]): Promise<any> {
    const [command, name = ''] = words.map(String);
    try {
      return await this.run(...words);
    } catch (error) {
      if (!(error as Error).message.startsWith('ERR unknown command')) throw error;
    }
    if (command === 'FAIRLOCK.BREAK') return this.run('DEL', name);
    return this.run(...scripted(words.map(String))!.whole);
  }

  async info(name: string): Promise<Record<string, any>> {
    const reply = await this.run('FAIRLOCK.INFO', name).catch(() => this.#infoByKeys(name));
    const pairs = [];
    for (let at = 0; at < reply.length; at += 2) pairs.push([reply[at], reply[at + 1]]);
    return Object.fromEntries(pairs);
  }

  async #infoByKeys(name: string): Promise<unknown[]> {
    const { '': token = null, ...holders } = await this.client.hGetAll(name);
    const [[owner, holds] = [null, 0]] = Object.entries(holders);
    const lease = await this.run('PTTL', name);
    return Object.entries({ owner, holds: Number(holds), lease, token: token && Number(token) }).flat();
  }

  async owner(name: string): Promise<string | null> {
    return (await this.info(name))['owner'];
  }

  async isFree(name: string): Promise<boolean> {
    return (await this.owner(name)) === null;
  }

  async queue(name: string): Promise<string[]> {
    const waiters = await this.run('FAIRLOCK.QUEUE', name).catch(() => this.run('LRANGE', `redisson_lock_queue:{${name}}`, 0, -1));
    return waiters.map((waiter: unknown) => (Array.isArray(waiter) ? waiter[0] : waiter));
  }

  async waits(name: string, count = 1): Promise<void> {
    await until(`${count} wait for ${name}`, async () => (await this.queue(name)).length === count);
  }

  async calls(command: string): Promise<number> {
    if (SCRIPTS && command !== 'info') return this.#scripts(command);
    const stats = await this.client.info('commandstats');
    return Number(new RegExp(`cmdstat_${SCRIPTS ? 'hgetall' : `fairlock.${command}`}:calls=(\\d+)`).exec(stats)?.[1] ?? 0);
  }

  async #scripts(command: string): Promise<number> {
    const log: [number, number, number, string[]][] = await this.run('SLOWLOG', 'GET', -1);
    const { short, whole } = scripted([`FAIRLOCK.${command.toUpperCase()}`])!;
    // The log has the beginning of each argument.
    const isOne = ([verb, script = '']: string[]) =>
      (verb === 'EVALSHA' && script === short[1]) || (verb === 'EVAL' && script.slice(0, 50) === whole[1]!.slice(0, 50));
    return log.filter(([, , , words]) => isOne(words)).length;
  }

  /** The connections of others. */
  async clients(): Promise<{ id: string; cmd: string }[]> {
    const me = String(await this.client.clientId());
    const list = String(await this.run('CLIENT', 'LIST')).trim().split('\n');
    const fields = (line: string) => Object.fromEntries(line.split(' ').map((pair) => pair.split('=', 2)));
    return list.map(fields).filter((each) => each['id'] !== me) as { id: string; cmd: string }[];
  }

  end(): void {
    if (this.client.isOpen) this.client.destroy();
  }
}
