// What is asked of the client libraries, all by their public methods. None is imported: a client shows which one made it.

import { EventEmitter, errorMonitor } from 'node:events';
import calculateSlot = require('cluster-key-slot');
import { Failure } from './errors.js';
import { within } from './timers.js';

/** Of node-redis what `createClient`, `createCluster` or `createSentinel` returns; of ioredis or iovalkey a Redis or a Cluster. */
export type Client =
  | { readonly isOpen: boolean; sendCommand(...args: never[]): Promise<unknown> }
  | { readonly status: string; call(...args: never[]): unknown; duplicate(...args: never[]): unknown };

type Raw = any; // a client, a node of a cluster or a duplicate
type Heard = (message: unknown, channel: string) => void;

interface Library {
  /** Sends commands in one pipeline on one connection. */
  call(client: Raw, commands: string[][]): Promise<unknown>[];
  /** A connection of its own that nothing opens again: for a session, or to listen. */
  duplicate(client: Raw, isSession: boolean): Raw;
  subscribe(line: Raw, channel: string, heard: Heard, isSharded: boolean): Promise<unknown>;
  unsubscribe(line: Raw, channel: string, isSharded: boolean): Promise<unknown>;
  close(line: Raw): void;
}

const PLAIN = { typeMapping: {} }; // whatever types the client has for itself
const NODE_REDIS: Library = {
  call: (client, commands) => commands.map((words) => client.sendCommand(words, PLAIN)),
  duplicate: (client) => client.duplicate({ socket: { ...client.options.socket, reconnectStrategy: false, socketTimeout: undefined } }),
  subscribe: (line, channel, heard, isSharded) => (isSharded ? line.sSubscribe(channel, heard) : line.subscribe(channel, heard)),
  unsubscribe: (line, channel, isSharded) => (isSharded ? line.sUnsubscribe(channel) : line.unsubscribe(channel)),
  close: (line) => line.isOpen && line.destroy(),
};

const FRESH = { lazyConnect: true, retryStrategy: null, autoResendUnfulfilledCommands: false, enableReadyCheck: false, commandTimeout: undefined };
const IOREDIS: Library = {
  call: (client, commands) => commands.map(([command, ...rest]) => client.call(command, ...rest)),
  duplicate: (client) => client.duplicate(FRESH),
  subscribe(line, channel, heard, isSharded) {
    if (!line.listenerCount('message')) for (const event of ['message', 'smessage']) line.on(event, (its: string) => heard('', its));
    return isSharded ? line.ssubscribe(channel) : line.subscribe(channel);
  },
  unsubscribe: (line, channel, isSharded) => (isSharded ? line.sunsubscribe(channel) : line.unsubscribe(channel)),
  close: (line) => line.disconnect(),
};

// The connections of createSentinel cannot be copied: it listens by one of its own, and a session has one of its pool.
const SENTINEL: Library = {
  ...NODE_REDIS,
  call(client, commands) {
    if (commands.length === 1 || client.release) return commands.map((words) => client.sendCommand(false, words, PLAIN));
    const sent = commands.reduce((multi, words) => multi.addCommand(false, words), client.multi()).execAsPipeline();
    return commands.map(async (_, place) => (await sent)[place]);
  },
  duplicate(client, isSession) {
    const line = Object.create(client);
    return Object.assign(line, { on: () => line, ping: async () => {}, connect: async () => isSession && lease(client, line), destroy() {} });
  },
  subscribe: (line, channel, heard) => line.subscribe(channel, heard),
  unsubscribe: (line, channel) => line.unsubscribe(channel),
};

async function lease(client: Raw, line: Raw): Promise<void> {
  const its = await client.acquire();
  const release = (): void => its.release();
  // Others need one, too.
  const none = (): Error => new Error('ERR a session takes a connection of createSentinel: set its masterPoolSize higher');
  await within(1000, client.sendCommand(false, ['PING']), none).catch((error) => { release(); throw error; });
  Object.assign(line, { sendCommand: its.sendCommand.bind(its), release, destroy: release });
}

/** A server: the user's connection to it, and those of this package. */
export class Server {
  #replicas: { count: number | Promise<number>; master: string | undefined } | undefined;
  /** Of the user's connection, since it was ready; and how often it was closed. */
  #trouble: Failure | undefined;
  #closings = 0;
  readonly #lines = new Map<string, Line>();
  readonly #events: [string | symbol, (event: unknown) => void][];

  constructor(readonly client: Raw, readonly library: Library, readonly timeout: number, readonly isInCluster: boolean) {
    const failed = (error: unknown): void => void (this.#trouble = new Failure(error, this.address));
    this.#events = [['ready', () => (this.#trouble = undefined)], [errorMonitor, failed], ['close', () => (this.#closings += 1)]];
    for (const [event, listener] of this.#events) client.on(event, listener);
  }

  get address(): string {
    const { host, port, path, sentinels, name, socket = {} } = this.client.options ?? this.client.getMasterNode?.() ?? {};
    if (sentinels?.length) return `the master ${name}`;
    return socket.path ?? path ?? `${socket.host ?? host ?? '127.0.0.1'}:${socket.port ?? port ?? 6379}`;
  }

  /** The replies to commands in one pipeline; those after the first may be a Failure. */
  async call(commands: string[][], longest: number): Promise<unknown[]> {
    const standIn = this.#lines.get('stand-in');
    if (standIn) return standIn.call(commands, longest);
    mustBeOpen(this.client, this.address);
    const closings = this.#closings;
    const sent = this.library.call(this.client, commands);
    try {
      const replies = await within(longest, settled(sent, this.address), () => this.#late(sent));
      this.#trouble = undefined;
      return replies;
    } catch (error) {
      const failure = error as Failure;
      failure.isRepeated = this.#closings > closings;
      if (failure.code === 'NOAUTH') await new Promise(setImmediate); // The client says why only now.
      throw failure.code === undefined || failure.code === 'NOAUTH' ? (this.#trouble ?? failure) : failure;
    }
  }

  /** If the client takes a connection for a good one that does not answer, one of this package's stands in until it does. */
  #late(sent: Promise<unknown>[]): Failure {
    const { status, isReady } = this.client;
    if ((isReady || status === 'ready') && this.library !== SENTINEL) {
      const line = this.line('stand-in');
      void Promise.allSettled(sent).then(() => line.close());
    }
    return this.unanswered();
  }

  unanswered(): Failure {
    return this.#trouble ?? new Failure('no answer in time', this.address);
  }

  /** 1 if the master had a replica when it was first asked, else 0. Behind a Sentinel it may be another after each connection. */
  replicas(): number | Promise<number> {
    const master = (): string => this.address + (this.client.options?.sentinels ? this.#closings : '');
    const known = this.#replicas;
    if (known && (known.master ?? master()) === master()) return known.count;
    const asked: typeof known = (this.#replicas = { count: this.#role(), master: undefined });
    void Promise.resolve(asked.count).then((count) => Object.assign(asked, { count, master: master() }), () => (this.#replicas = undefined));
    return asked.count;
  }

  async #role(): Promise<number> {
    try {
      const [role] = (await this.call([['ROLE']], this.timeout)) as [unknown[]];
      return role[0] === 'master' && (role[2] as unknown[]).length > 0 ? 1 : 0;
    } catch (error) {
      if ((error as Failure).isUnknown) return 0;
      throw error;
    }
  }

  /** One that listens, one on which replicas confirm, as WAIT blocks what is behind it, one that stands in for the user's. */
  line(use: 'ears' | 'confirm' | 'stand-in'): Line {
    const line = this.#lines.get(use) ?? new Line(this, false).once('closed', () => this.#lines.delete(use));
    this.#lines.set(use, line);
    return line;
  }

  close(): void {
    for (const [event, listener] of this.#events) this.client.off(event, listener);
    for (const line of this.#lines.values()) line.close();
  }
}

/** A connection of this package's own, which is never opened again. Emits `closed`, and the channels of messages. */
export class Line extends EventEmitter {
  isClosed = false;
  #failure: Failure | undefined;
  #opened: Promise<unknown> | undefined;
  #isSharded: boolean;
  readonly #raw: Raw;

  constructor(readonly server: Server, private readonly isSession: boolean) {
    super();
    this.setMaxListeners(0);
    this.#isSharded = server.isInCluster;
    this.#raw = server.library.duplicate(server.client, isSession);
    for (const event of ['error', 'end', 'close', 'moved', 'sharded-channel-moved']) this.#raw.on(event, (error: unknown) => this.close(error));
  }

  async call(commands: string[][], longest: number): Promise<unknown[]> {
    await this.open();
    const { library, address } = this.server;
    const silence = (): Failure => {
      const failure = new Failure('no answer in time', address);
      return this.isSession ? failure : this.close(failure);
    };
    return within(longest, settled(library.call(this.#raw, commands), address), silence);
  }

  open(): Promise<unknown> {
    return (this.#opened ??= this.#orClosed(this.#raw.connect(), true));
  }

  /** Without an answer the connection is dead. */
  async #orClosed(work: Promise<unknown>, isOpening = false): Promise<void> {
    const { timeout, address } = this.server;
    try {
      await within(timeout, work, () => new Error('no answer in time'));
    } catch (error) {
      const failure = new Failure(error, address);
      if (failure.code !== undefined && !isOpening) throw failure;
      this.close(failure);
    }
    if (this.#failure) throw this.#failure;
  }

  /** Resolves when the subscription is confirmed; with one that stands already, when the connection has answered. */
  async listen(channel: string, wake: () => void): Promise<void> {
    await this.open();
    if (this.listeners(channel).includes(wake)) return this.#orClosed(this.#raw.ping());
    try {
      await this.#orClosed(this.server.library.subscribe(this.#raw, channel, (_, its) => this.emit(its), this.#isSharded));
    } catch (error) {
      if (!this.#isSharded || !(error as Failure).isUnknown) throw error;
      this.#isSharded = false; // Redis has SSUBSCRIBE since 7.0.
      return this.listen(channel, wake);
    }
    this.on(channel, wake);
  }

  unlisten(channel: string, wake: () => void): void {
    this.off(channel, wake);
    if (this.listenerCount(channel) > 0 || this.isClosed) return;
    this.server.library.unsubscribe(this.#raw, channel, this.#isSharded).catch(() => {});
  }

  close(reason: unknown = 'the connection was closed'): Failure {
    this.#failure ??= new Failure(reason, this.server.address);
    if (this.isClosed) return this.#failure;
    this.isClosed = true;
    this.server.library.close(this.#raw);
    for (const event of this.eventNames()) this.emit(event);
    return this.#failure;
  }
}

/** The first reply, or what the client says instead; of the others, Failures as well. */
async function settled(sent: Promise<unknown>[], address: string): Promise<unknown[]> {
  const replies = await Promise.allSettled(sent);
  const [first, ...others] = replies.map((each) => (each.status === 'fulfilled' ? each.value : new Failure(each.reason, address)));
  if (first instanceof Failure) throw first;
  return [first, ...others];
}

function mustBeOpen({ isOpen, status }: Raw, address: string): void {
  if (isOpen === false || status === 'end') throw new Failure('ERR the client is not connected: call its connect() before', address);
}

/** The servers of the user's client. */
export class Servers {
  readonly #all = new Map<Raw, Server>();
  readonly #client: Raw;
  readonly #library: Library;
  readonly isCluster: boolean;

  constructor(client: Client, private readonly timeout: number) {
    const given = (this.#client = Object(client) as Raw);
    const has = (...methods: string[]): boolean => methods.every((each) => typeof given[each] === 'function');
    const isIoredis = typeof given.status === 'string' && has('call', 'disconnect', 'subscribe') && typeof given.options === 'object';
    const isNodeRedis = typeof given.isOpen === 'boolean' && has('sendCommand', 'subscribe');
    const isSentinel = isNodeRedis && has('acquire', 'getMasterNode');
    this.isCluster = isIoredis ? given.isCluster === true : isNodeRedis && has('nodeClient');
    if (!isSentinel && !((isIoredis || isNodeRedis) && has('duplicate'))) {
      throw new TypeError(
        'Locks wants what createClient(), createCluster() or createSentinel() of the package "redis" returns, or a Redis or Cluster of the ' +
          'package "ioredis" or "iovalkey": got something else',
      );
    }
    const prefix = isIoredis && (given.options.keyPrefix || given.options.redisOptions?.keyPrefix);
    if (prefix) throw new TypeError(`Locks wants a client without the keyPrefix "${prefix}": client.duplicate({ keyPrefix: '' })`);
    this.#library = isIoredis ? IOREDIS : isSentinel ? SENTINEL : NODE_REDIS;
    if (!this.isCluster) this.#server(given);
  }

  #server(client: Raw): Server {
    const server = this.#all.get(client) ?? new Server(client, this.#library, this.timeout, this.isCluster);
    this.#all.set(client, server);
    return server;
  }

  /** The lock's server. In a cluster, CLUSTERDOWN: the client has no connection to one for the slot. */
  async at(name: string): Promise<Server> {
    if (!this.isCluster) return this.#server(this.#client);
    const shard = this.#client.slots[calculateSlot(name)];
    if (this.#library === NODE_REDIS) {
      const node = shard?.master;
      if (node && node.client?.isReady !== false) {
        const late = (): Error => new Error('no connection in time');
        const client = within(this.timeout, Promise.resolve(this.#client.nodeClient(node)), late);
        return this.#server(await client.catch((error: unknown) => Promise.reject(new Failure(error, node.address))));
      }
    } else {
      const node = this.#client.nodes('master').find(({ options }: Raw) => `${options.host}:${options.port}` === shard?.[0]);
      if (['ready', 'wait'].includes(node?.status)) return this.#server(node);
    }
    throw new Failure('CLUSTERDOWN no node that is known has the slot', 'the cluster');
  }

  /** Sends one command by way of the cluster's client, which follows redirections and learns of new nodes by them. */
  async follow(name: string, words: string[], longest: number): Promise<unknown> {
    const where = 'the cluster';
    mustBeOpen(this.#client, where);
    // Without a key, any node is asked: that of the slot may be gone.
    const key = this.#client.slots[calculateSlot(name)]?.master?.client?.isReady ? name : undefined;
    const sent = this.#library === IOREDIS ? this.#client.call(...words) : this.#client.sendCommand(key, false, words, PLAIN);
    return (await within(longest, settled([sent], where), () => new Failure('no answer in time', where)))[0];
  }

  close(): void {
    for (const server of this.#all.values()) server.close();
  }
}
