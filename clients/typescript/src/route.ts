// Where the connections for a lock go: to the one server, the master that sentinels name, or a node of a cluster.
// Taken from the user's client: what it connects with. The client itself is left alone.

import type { RedisSentinelOptions } from 'redis';
import { Broken, Refusal } from './errors.js';
import { RedisLine } from './line.js';
import type { Address, Line, Settings } from './line.js';

/** Knows where a lock is, and opens connections to there. */
export interface Route {
  locate(name: string): Promise<Address>;
  /** Whether the lock's master has, or had, a replica by the word of Sentinel or the cluster; one that is down counts. */
  hasReplicas(name: string): boolean;
  open(address: Address): Promise<Line>;
  /** Takes a MOVED; the address in a MOVED or ASK, if it is one. */
  redirect(refusal: Refusal): Address | undefined;
  /** After a failure: what is known may be out of date. */
  distrust(): void;
  /** Asks anew which addresses are masters. Undefined where nobody else could tell. */
  readonly masters: (() => Promise<Set<Address>>) | undefined;
  close(): void;
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

/** The route that a client's servers need. */
export function routeOf(client: Client, timeout: number): Route {
  const given = Object(client) as Record<string, any>;
  if (given['sentinelRootNodes']?.length && given['name']) return new SentinelRoute(client as RedisSentinelOptions, timeout);
  if (given['_options']?.rootNodes) return new ClusterRoute(given['_options'], timeout);
  // Only a node-redis client has both; others than that are not to mean 127.0.0.1:6379.
  if (typeof given['isReady'] === 'boolean' && typeof given['options'] === 'object') return new OneServer(given['options'], timeout);
  throw new TypeError(
    'Locks wants what createClient() or createCluster() of the package "redis" returns, or the options that createSentinel() is ' +
      'given ({ name, sentinelRootNodes }): this is neither',
  );
}

function at(settings: Settings, address: Address): Settings {
  const colon = address.lastIndexOf(':');
  const { url: _, ...rest } = settings;
  const socket = { ...settings.socket, host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
  return { ...rest, socket } as Settings;
}

class OneServer implements Route {
  readonly #address: Address;
  readonly masters = undefined;

  constructor(private readonly settings: Settings, private readonly timeout: number) {
    this.#address = (settings.socket as { path?: string } | undefined)?.path ?? addressOf(settings);
  }

  async locate(): Promise<Address> {
    return this.#address;
  }

  hasReplicas(): boolean {
    return false;
  }

  open(address: Address): Promise<Line> {
    return RedisLine.open(this.settings, address, this.timeout);
  }

  redirect(): undefined {}

  distrust(): void {}

  close(): void {}
}

/** Asks whichever of some servers answers, and stays with that one. */
class Oracle<T> {
  #line: Line | undefined;
  #asking: Promise<T> | undefined;
  #isClosed = false;

  constructor(
    private readonly open: (address: Address) => Promise<Line>,
    private readonly addresses: () => Address[],
    private readonly question: (line: Line) => Promise<T>,
  ) {}

  /** Those who ask while another one is being answered share its answer. */
  ask(): Promise<T> {
    this.#asking ??= this.#ask().finally(() => (this.#asking = undefined));
    return this.#asking;
  }

  async #ask(): Promise<T> {
    let failure: unknown;
    for (const address of new Set([this.#line?.address ?? this.addresses()[0]!, ...this.addresses()])) {
      try {
        return await this.question(await this.#lineTo(address));
      } catch (error) {
        this.#line?.destroy();
        // One that is silent may answer later; what all refuse is refused.
        if (!(failure instanceof Broken)) failure = error;
      }
    }
    throw failure;
  }

  async #lineTo(address: Address): Promise<Line> {
    if (this.#line?.address === address && !this.#line.isClosed) return this.#line;
    this.#line = await this.open(address);
    if (this.#isClosed) this.#line.destroy();
    return this.#line;
  }

  close(): void {
    this.#isClosed = true;
    this.#line?.destroy();
  }
}

class SentinelRoute implements Route {
  readonly #settings: Settings;
  readonly #oracle: Oracle<Address>;
  #master: Address | undefined;
  #hasReplicas = false;

  constructor({ name, sentinelRootNodes, nodeClientOptions, sentinelClientOptions }: RedisSentinelOptions, private readonly timeout: number) {
    this.#settings = (nodeClientOptions ?? {}) as Settings;
    const open = (address: Address) => RedisLine.open(at((sentinelClientOptions ?? {}) as Settings, address), address, timeout);
    const addresses = sentinelRootNodes.map(({ host, port }) => `${host}:${port}`);
    this.#oracle = new Oracle(open, () => addresses, (line) => this.#ask(line, name));
  }

  async locate(): Promise<Address> {
    return this.#master ?? this.#oracle.ask();
  }

  async #ask(line: Line, name: string): Promise<Address> {
    const words = ['GET-MASTER-ADDR-BY-NAME', 'MASTER'];
    const [found, about] = await Promise.all(words.map((word) => line.call(['SENTINEL', word, name])));
    if (!Array.isArray(found) || !Array.isArray(about)) throw new Broken(`${line.address}: no Sentinel knows a master ${name}`);
    if (Number(about[about.indexOf('num-slaves') + 1]) > 0) this.#hasReplicas = true;
    return (this.#master = `${found[0]}:${found[1]}`);
  }

  hasReplicas(): boolean {
    return this.#hasReplicas;
  }

  async open(address: Address): Promise<Line> {
    const master = await this.#oracle.ask();
    if (master !== address) throw new Refusal(`READONLY the Sentinels name ${master} as the master`, address);
    return RedisLine.open(at(this.#settings, address), address, this.timeout);
  }

  redirect(): undefined {}

  distrust(): void {
    this.#master = undefined;
  }

  readonly masters = async () => new Set([await this.#oracle.ask()]);

  close(): void {
    this.#oracle.close();
  }
}

class ClusterRoute implements Route {
  #slots: Address[] = [];
  #nodes: Address[];
  readonly #withReplicas = new Set<number>();
  readonly #settings: Settings;
  readonly #oracle: Oracle<Set<Address>>;

  constructor(cluster: ClusterSettings, private readonly timeout: number) {
    const roots = cluster.rootNodes as Settings[];
    const defaults = (cluster.defaults ?? {}) as Settings;
    this.#settings = { ...defaults, ...roots[0], socket: { ...defaults.socket, ...roots[0]?.socket } } as Settings;
    this.#nodes = roots.map(addressOf);
    this.#oracle = new Oracle((address) => this.open(address), () => this.#nodes, (line) => this.#ask(line));
  }

  async locate(name: string): Promise<Address> {
    const slot = slotOf(name);
    if (!this.#slots[slot]) await this.#oracle.ask();
    const address = this.#slots[slot];
    if (address === undefined) throw new Refusal('CLUSTERDOWN no node has the slot', this.#nodes[0]!);
    return address;
  }

  /** Learns the map of slots; the masters. */
  async #ask(line: Line): Promise<Set<Address>> {
    const words = ['SLOTS', 'NODES'];
    const [ranges, nodes] = await Promise.all(words.map((word) => line.call(['CLUSTER', word])));
    // Only NODES has those that are down: `id address flags master ...`
    const replicas = String(nodes).split('\n').map((node) => node.split(' ')).filter(([, , flags]) => flags?.includes('slave'));
    this.#learn(ranges as unknown[][], line.address, new Set(replicas.map(([, , , master]) => master!)));
    return new Set(this.#slots);
  }

  #learn(ranges: unknown[][], asked: Address, withReplicas: Set<string>): void {
    const found: Address[] = [];
    this.#slots = [];
    for (const [first, last, ...members] of ranges) {
      // A node that does not know its own address says nothing: it is the one that was asked.
      const hosts = (members as [string, number][]).map(([host, port]) => `${host || hostOf(asked)}:${port}`);
      const id = (members as [string, number, string][])[0]![2];
      for (let slot = first as number; slot <= (last as number); slot++) {
        this.#slots[slot] = hosts[0]!;
        if (withReplicas.has(id)) this.#withReplicas.add(slot);
      }
      found.push(...hosts);
    }
    // Nodes that are not in the reply may be back later.
    this.#nodes = [...new Set([...found, ...this.#nodes])];
  }

  hasReplicas(name: string): boolean {
    return this.#withReplicas.has(slotOf(name));
  }

  open(address: Address): Promise<Line> {
    return RedisLine.open(at(this.#settings, address), address, this.timeout, true);
  }

  redirect({ text }: Refusal): Address | undefined {
    const [, kind, slot, address] = /^(MOVED|ASK) (\d+) (\S+:\d+)$/.exec(text) ?? [];
    if (kind === 'MOVED') this.#slots[Number(slot)] = address!;
    return address;
  }

  distrust(): void {
    this.#slots = [];
  }

  readonly masters = () => this.#oracle.ask();

  close(): void {
    this.#oracle.close();
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
