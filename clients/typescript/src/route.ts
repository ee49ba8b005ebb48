// Where the connections for a lock go: to the one server, the master that sentinels name, or a node of a cluster.
// Taken from the user's client: what it connects with. The client itself is left alone.

import { createClient, ErrorReply } from 'redis';
import type { RedisClientOptions, RedisClientType, RedisSentinelOptions } from 'redis';
import { Broken, Refusal } from './errors.js';

/** `host:port`, or the empty string where there is only one server. */
export type Address = string;

/** A connection. It does not connect again: another one is opened then. */
export interface Line {
  readonly address: Address;
  readonly isClosed: boolean;
  /** Rejects with a Refusal, or with Broken; an answer that does not come in time closes the connection. */
  call(words: string[], timeout?: number): Promise<unknown>;
  subscribe(channel: string, wake: () => void): Promise<void>;
  unsubscribe(channel: string): Promise<void>;
  /** Called once, when it has closed for whatever reason. */
  whenClosed(listener: () => void): void;
  destroy(): void;
}

/** Opens connections to where a lock is. */
export interface Route {
  locate(name: string): Promise<Address>;
  open(address: Address): Promise<Line>;
  /** Takes a MOVED; the address in a MOVED or ASK, if it is one. */
  redirect(refusal: Refusal): Address | undefined;
  /** After a failure: what is known may be out of date. */
  distrust(): void;
  describe(address: Address): string;
}

interface ClusterSettings {
  rootNodes: object[];
  defaults?: object | undefined;
}

/** What `createClient` or `createCluster` returns, or what `createSentinel` is given. */
export type Client =
  | { readonly options?: object | undefined; readonly isReady: boolean }
  | { readonly _options: ClusterSettings; readonly slots: unknown }
  | { readonly sentinelRootNodes: { host: string; port: number }[]; readonly name: string };
type Settings = RedisClientOptions;

/** The route that a client's servers need. */
export function routeOf(client: Client, timeout: number): Route {
  if ('sentinelRootNodes' in client) return new SentinelRoute(client as RedisSentinelOptions, timeout);
  if ('_options' in client) return new ClusterRoute(client._options, timeout);
  return new OneServer((client.options ?? {}) as Settings, timeout);
}

class RedisLine implements Line {
  isClosed = false;
  #listeners: (() => void)[] = [];

  private constructor(
    private readonly client: RedisClientType,
    readonly address: Address,
    private readonly isSharded: boolean,
    private readonly timeout: number,
  ) {
    const closed = () => this.#close();
    client.on('error', closed).on('end', closed).on('sharded-channel-moved', closed);
  }

  static async open(settings: Settings, address: Address, isSharded: boolean, timeout: number): Promise<RedisLine> {
    const client = createClient({
      ...settings,
      RESP: 2,
      // Another connection would be another session, and other subscriptions: Locks opens it where it is needed.
      socket: { ...settings.socket, reconnectStrategy: false, socketTimeout: undefined, connectTimeout: timeout },
      ...unset('commandOptions', 'pingInterval', 'clientSideCache', 'commandsQueueMaxLength', 'disableOfflineQueue'),
    } as object) as RedisClientType;
    const line = new RedisLine(client, address, isSharded, timeout);
    await line.#within(timeout, client.connect());
    return line;
  }

  call(words: string[], timeout = this.timeout): Promise<unknown> {
    return this.#within(timeout, this.client.sendCommand(words));
  }

  async subscribe(channel: string, wake: () => void): Promise<void> {
    const done = this.isSharded ? this.client.sSubscribe(channel, wake) : this.client.subscribe(channel, wake);
    await this.#within(this.timeout, done);
  }

  async unsubscribe(channel: string): Promise<void> {
    const done = this.isSharded ? this.client.sUnsubscribe(channel) : this.client.unsubscribe(channel);
    await this.#within(this.timeout, done);
  }

  whenClosed(listener: () => void): void {
    if (this.isClosed) listener();
    else this.#listeners.push(listener);
  }

  destroy(): void {
    this.#close();
  }

  #close(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    if (this.client.isOpen) this.client.destroy();
    for (const listener of this.#listeners) listener();
  }

  async #within<T>(timeout: number, answer: Promise<T>): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      if (timeout === Infinity) return;
      timer = setTimeout(() => {
        reject(new Broken(`no answer from ${this.address || 'the server'} in ${timeout} ms`));
        this.#close();
      }, timeout);
    });
    try {
      return await Promise.race([answer, late]);
    } catch (error) {
      answer.catch(() => {});
      if (error instanceof ErrorReply) throw new Refusal(error.message);
      if (error instanceof Broken) throw error;
      this.#close();
      throw new Broken((error as Error).message || String(error), { cause: error });
    } finally {
      clearTimeout(timer);
    }
  }
}

function unset(...keys: string[]): Record<string, undefined> {
  return Object.fromEntries(keys.map((key) => [key, undefined]));
}

function at(settings: Settings, address: Address): Settings {
  const colon = address.lastIndexOf(':');
  const { url: _, ...rest } = settings;
  const socket = { ...settings.socket, host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
  return { ...rest, socket } as Settings;
}

class OneServer implements Route {
  constructor(protected readonly settings: Settings, protected readonly timeout: number) {}

  async locate(_name: string): Promise<Address> {
    return '';
  }

  open(address: Address): Promise<Line> {
    return RedisLine.open(this.settings, address, false, this.timeout);
  }

  redirect(_refusal: Refusal): Address | undefined {
    return undefined;
  }

  distrust(): void {}

  describe(address: Address): string {
    if (address) return address;
    const socket = (this.settings.socket ?? {}) as { host?: string; port?: number; path?: string };
    return socket.path ?? `${socket.host ?? '127.0.0.1'}:${socket.port ?? 6379}`;
  }
}

class SentinelRoute extends OneServer {
  #master: Address | undefined;

  constructor(private readonly sentinels: RedisSentinelOptions, timeout: number) {
    super((sentinels.nodeClientOptions ?? {}) as Settings, timeout);
  }

  override async locate(): Promise<Address> {
    return (this.#master ??= await this.#ask());
  }

  async #ask(): Promise<Address> {
    let failure: unknown;
    for (const { host, port } of this.sentinels.sentinelRootNodes) {
      try {
        const settings = at((this.sentinels.sentinelClientOptions ?? {}) as Settings, `${host}:${port}`);
        const line = await RedisLine.open(settings, `${host}:${port}`, false, this.timeout);
        try {
          const found = await line.call(['SENTINEL', 'GET-MASTER-ADDR-BY-NAME', this.sentinels.name]);
          if (Array.isArray(found)) return `${found[0]}:${found[1]}`;
        } finally {
          line.destroy();
        }
      } catch (error) {
        failure = error;
      }
    }
    throw new Broken(`no sentinel knows the master of ${this.sentinels.name}`, { cause: failure });
  }

  override open(address: Address): Promise<Line> {
    return RedisLine.open(at(this.settings, address), address, false, this.timeout);
  }

  override distrust(): void {
    this.#master = undefined;
  }
}

class ClusterRoute implements Route {
  #slots = new Map<number, Address>();
  #nodes: Address[];
  readonly #settings: Settings;

  constructor(cluster: ClusterSettings, private readonly timeout: number) {
    const roots = cluster.rootNodes as Settings[];
    const defaults = (cluster.defaults ?? {}) as Settings;
    this.#settings = { ...defaults, ...roots[0], socket: { ...defaults.socket, ...roots[0]?.socket } } as Settings;
    this.#nodes = roots.map(addressOf);
  }

  async locate(name: string): Promise<Address> {
    const slot = slotOf(name);
    if (!this.#slots.has(slot)) await this.#readSlots();
    const address = this.#slots.get(slot);
    if (address === undefined) throw new Refusal('CLUSTERDOWN no node has the slot');
    return address;
  }

  async #readSlots(): Promise<void> {
    let failure: unknown;
    for (const node of this.#nodes) {
      try {
        const line = await this.open(node);
        try {
          return this.#learn((await line.call(['CLUSTER', 'SLOTS'])) as unknown[][], node);
        } finally {
          line.destroy();
        }
      } catch (error) {
        failure = error;
      }
    }
    throw new Broken('no node of the cluster can be reached', { cause: failure });
  }

  #learn(ranges: unknown[][], asked: Address): void {
    const found: Address[] = [];
    for (const [first, last, ...members] of ranges) {
      // A node that does not know its own address says nothing: it is the one that was asked.
      const hosts = (members as [string, number][]).map(([host, port]) => `${host || hostOf(asked)}:${port}`);
      for (let slot = first as number; slot <= (last as number); slot++) this.#slots.set(slot, hosts[0]!);
      found.push(...hosts);
    }
    // Nodes that are not in the reply may be back later.
    this.#nodes = [...new Set([...found, ...this.#nodes])];
  }

  open(address: Address): Promise<Line> {
    return RedisLine.open(at(this.#settings, address), address, true, this.timeout);
  }

  redirect(refusal: Refusal): Address | undefined {
    const [, kind, slot, address] = /^(MOVED|ASK) (\d+) (\S+:\d+)$/.exec(refusal.message) ?? [];
    if (kind === 'MOVED') this.#slots.set(Number(slot), address!);
    return address;
  }

  distrust(): void {
    this.#slots.clear();
  }

  describe(address: Address): string {
    return address || this.#nodes[0]!;
  }
}

function addressOf(settings: Settings): Address {
  if (settings.url) {
    const url = new URL(settings.url);
    return `${url.hostname}:${url.port || 6379}`;
  }
  const { host, port } = (settings.socket ?? {}) as { host?: string; port?: number };
  return `${host ?? '127.0.0.1'}:${port ?? 6379}`;
}

function hostOf(address: Address): string {
  return address.slice(0, address.lastIndexOf(':'));
}

/** CRC-16 (XMODEM) of what is in the first braces, if anything, modulo 16384: as the server does. */
export function slotOf(name: string): number {
  const open = name.indexOf('{');
  const close = name.indexOf('}', open + 1);
  const part = open >= 0 && close > open + 1 ? name.slice(open + 1, close) : name;
  let crc = 0;
  for (const byte of Buffer.from(part)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit++) crc = crc & 0x8000 ? ((crc << 1) ^ 0x1021) & 0xffff : (crc << 1) & 0xffff;
  }
  return crc % 16384;
}
