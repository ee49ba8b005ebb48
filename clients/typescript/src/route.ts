// Where the connections for a lock go: to the one server, the master that sentinels name, or a node of a cluster. It
// takes the options of the user's client, and leaves the client itself alone.

import { Broken, Refusal } from './errors.js';
import { sourceOfIoredis } from './ioredis.js';
import { Line } from './line.js';
import { sourceOfNodeRedis } from './node-redis.js';
import { hostAndPort } from './wire.js';
import type { Address, Source } from './wire.js';

/** Knows a lock's server, and opens connections to it. */
export interface Route {
  locate(name: string): Promise<Address>;
  /** Whether Sentinel or the cluster knows, or knew, a replica of the lock's master; one that is down counts. */
  hasReplicas(name: string): boolean;
  open(address: Address): Promise<Line>;
  /** Takes a MOVED; the address in a MOVED or ASK, if it is one. */
  redirect(refusal: Refusal): Address | undefined;
  /** After a failure: the known masters may be out of date. */
  distrust(): void;
  /** Asks anew which addresses are masters. Undefined if there is only one server. */
  readonly masters: (() => Promise<Set<Address>>) | undefined;
  close(): void;
}

/** A client by `createClient` or `createCluster` of node-redis, or the options for its `createSentinel`; a Redis or Cluster of ioredis. */
export type Client =
  | { readonly options?: object | undefined; readonly isReady: boolean }
  | { readonly _options: { rootNodes: object[]; defaults?: object | undefined }; readonly slots: unknown }
  | { readonly sentinelRootNodes: { host: string; port: number }[]; readonly name: string; readonly [more: string]: unknown }
  | { readonly options: object; readonly status: string; readonly isCluster: boolean };

/** The route for a client's servers. */
export function routeOf(client: Client, timeout: number): Route {
  const given = Object(client) as Record<string, any>;
  const source = sourceOfIoredis(given) ?? sourceOfNodeRedis(given);
  if (source) return new { one: OneServer, sentinel: SentinelRoute, cluster: ClusterRoute }[source.kind](source, timeout);
  throw new TypeError(
    'Locks wants what createClient() or createCluster() of the package "redis" returns, or the options that its createSentinel() is ' +
      'given ({ name, sentinelRootNodes }), or a Redis or Cluster of the package "ioredis": got something else',
  );
}

class OneServer implements Route {
  readonly masters = undefined;

  constructor(private readonly source: Source, private readonly timeout: number) {}

  async locate(): Promise<Address> {
    return this.source.addresses[0]!;
  }

  hasReplicas(): boolean {
    return false;
  }

  open(address: Address): Promise<Line> {
    return Line.open(this.source, address, this.timeout);
  }

  redirect(): undefined {}

  distrust(): void {}

  close(): void {}
}

/** Asks some servers until one answers, and stays with that one. */
class Oracle<T> {
  #line: Line | undefined;
  #asking: Promise<T> | undefined;
  #isClosed = false;

  constructor(
    private readonly open: (address: Address) => Promise<Line>,
    private readonly addresses: () => Address[],
    private readonly question: (line: Line) => Promise<T>,
  ) {}

  /** Concurrent callers share one answer. */
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
        // A silent one may answer later; if all refuse, it is refused.
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
  readonly #oracle: Oracle<Address>;
  #master: Address | undefined;
  #hasReplicas = false;

  constructor(private readonly source: Source, private readonly timeout: number) {
    const open = (address: Address) => Line.open(source, address, timeout, true);
    this.#oracle = new Oracle(open, () => source.addresses, (line) => this.#ask(line, source.master!));
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
    return Line.open(this.source, address, this.timeout);
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
  readonly #oracle: Oracle<Set<Address>>;

  constructor(private readonly source: Source, private readonly timeout: number) {
    this.#nodes = source.addresses;
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
      // A node that does not know its own address leaves it out: it is the one that was asked.
      const hosts = (members as [string, number][]).map(([host, port]) => `${host || hostAndPort(asked).host}:${port}`);
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
    return Line.open(this.source, address, this.timeout);
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

/** CRC-16 (XMODEM) of the text in the first braces, if any, modulo 16384, as in the server. */
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
