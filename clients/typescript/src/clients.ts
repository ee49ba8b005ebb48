// What is asked of the client libraries, all by their public methods. None is imported: a client shows which one made it.
// Commands go by connections that are copied from the user's, and that nothing opens again: node-redis 5 writes a command that is sent just
// before a reset to the dead connection, and takes the replies of the next connection for those to it and to all that follow.

import { EventEmitter } from 'node:events';
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
  /** A connection of its own that nothing opens again. */
  duplicate(client: Raw, isSession: boolean): Raw;
  subscribe(line: Raw, channel: string, heard: Heard, isSharded: boolean): Promise<unknown>;
  unsubscribe(line: Raw, channel: string, heard: Heard, isSharded: boolean): Promise<unknown>;
  close(line: Raw): void;
}

const PLAIN = { typeMapping: {}, asap: false }; // whatever types and order the client has for itself
const NODE_REDIS: Library = {
  call: (client, commands) => commands.map((words) => client.sendCommand(words, PLAIN)),
  duplicate: (client) => client.duplicate({ socket: { ...client.options.socket, reconnectStrategy: false, socketTimeout: undefined } }),
  subscribe: (line, channel, heard, isSharded) => (isSharded ? line.sSubscribe(channel, heard) : line.subscribe(channel, heard)),
  // Without `heard` it would end what is subscribed to again before the answer.
  unsubscribe: (line, channel, heard, isSharded) => (isSharded ? line.sUnsubscribe(channel, heard) : line.unsubscribe(channel, heard)),
  close: (line) => line.isOpen && line.destroy(),
};

const FRESH = {
  lazyConnect: true, retryStrategy: null, autoResendUnfulfilledCommands: false, enableReadyCheck: false, commandTimeout: undefined, stringNumbers: false,
};
const IOREDIS: Library = {
  call: (client, commands) => commands.map(([command, ...rest]) => client.call(command, ...rest)),
  duplicate: (client) => client.duplicate(FRESH),
  subscribe(line, channel, heard, isSharded) {
    if (!line.listenerCount('message')) for (const event of ['message', 'smessage']) line.on(event, (its: string) => heard('', its));
    return isSharded ? line.ssubscribe(channel) : line.subscribe(channel);
  },
  unsubscribe: (line, channel, _, isSharded) => (isSharded ? line.sunsubscribe(channel) : line.unsubscribe(channel)),
  close: (line) => line.disconnect(),
};

// The connections of createSentinel cannot be copied: one of its pool is used, and each answer is shown to be its own by the PING behind it.
const SENTINEL: Library = {
  ...NODE_REDIS,
  call(client, commands) {
    const mark = `fairlock-${(pings += 1)}`;
    const multi = client.withTypeMapping({}).multi();
    const sent = [...commands, ['PING', mark]].reduce((its, words) => its.addCommand(false, words), multi).execAsPipeline();
    return commands.map(async (_, place) => {
      const replies = await sent;
      if (replies.at(-1) !== mark) throw new Error('the client has mixed up its replies');
      return replies[place];
    });
  },
  duplicate(client, isSession) {
    const line = Object.create(client);
    return Object.assign(line, { on: () => line, ping: async () => {}, connect: async () => isSession && lease(client, line), destroy() {} });
  },
  subscribe: (line, channel, heard) => line.subscribe(channel, heard),
  unsubscribe: (line, channel, heard) => line.unsubscribe(channel, heard),
};
let pings = 0;

async function lease(client: Raw, line: Raw): Promise<void> {
  const its = await client.acquire();
  const release = (): void => its.release();
  // Others need one, too.
  const none = (): Error => new Error('ERR a session takes a connection of createSentinel: set its masterPoolSize higher');
  await within(1000, client.sendCommand(false, ['PING']), none).catch((error) => { release(); throw error; });
  Object.assign(line, { withTypeMapping: its.withTypeMapping.bind(its), destroy: release });
}

/** A server, and the connections of this package to it. */
export class Server {
  readonly #replicas = new Map<string, number>();
  #asked: Promise<number> | undefined;
  readonly #lines = new Map<string, Line>();

  constructor(readonly client: Raw, readonly library: Library, readonly timeout: number, readonly isInCluster: boolean) {}

  get address(): string {
    const known = this.client.options ?? this.client.getMasterNode();
    if (!known) return 'the master'; // It has none at present, by createSentinel.
    const { host, port, path, sentinels, name, socket = {} } = known;
    if (sentinels?.length) return `the master ${name}`;
    return socket.path ?? path ?? `${socket.host ?? host ?? '127.0.0.1'}:${socket.port ?? port ?? 6379}`;
  }

  unanswered(): Failure {
    return new Failure('no answer in time', this.address);
  }

  /** 1 if the master had a replica when it was first asked, else 0. */
  replicas(): number | Promise<number> {
    const known = this.#replicas.get(this.address);
    if (known !== undefined) return known;
    return (this.#asked ??= this.#role().finally(() => (this.#asked = undefined)));
  }

  async #role(): Promise<number> {
    const [role] = (await this.line('commands').call([['ROLE']], this.timeout).catch((error: Failure) => {
      if (!error.isUnknown) throw error;
      return [['master', 0, []]];
    })) as [unknown[]];
    const count = role[0] === 'master' && (role[2] as unknown[]).length > 0 ? 1 : 0;
    this.#replicas.set(this.address, count); // Behind a Sentinel it is known only now.
    return count;
  }

  /** One that listens, one for commands, and one on which replicas confirm, as WAIT blocks what is behind it. */
  line(use: 'ears' | 'commands' | 'confirm'): Line {
    const line = this.#lines.get(use) ?? new Line(this, false).once('closed', () => this.#forget(use));
    this.#lines.set(use, line);
    return line;
  }

  #forget(use: string): void {
    this.#lines.delete(use);
    // Behind a Sentinel the next connection may be to another master.
    if (use === 'commands' && this.client.options?.sentinels) this.#replicas.clear();
  }

  close(): void {
    for (const line of this.#lines.values()) line.close();
  }
}

/** A connection of this package's own, which is never opened again. Emits `closed`, and the channels of messages. */
export class Line extends EventEmitter {
  isClosed = false;
  #failure: Failure | undefined;
  #opened: Promise<unknown> | undefined;
  #connecting: Promise<unknown> = Promise.resolve();
  #isSharded: boolean;
  readonly #raw: Raw;
  readonly #heard: Heard = (_, channel) => this.emit(channel);

  constructor(readonly server: Server, private readonly isSession: boolean) {
    super();
    this.setMaxListeners(0);
    this.#isSharded = server.isInCluster;
    this.#raw = server.library.duplicate(server.client, isSession);
    for (const event of ['error', 'end', 'close', 'moved', 'sharded-channel-moved']) this.#raw.on(event, (error: unknown) => this.close(error));
  }

  /** The replies to commands in one pipeline; those after the first may be a Failure. */
  call(commands: string[][], longest: number): Promise<unknown[]> {
    const { library, address, timeout } = this.server;
    const answer = this.#open().then(() => settled(library.call(this.#raw, commands), address)).catch(async (failure: Failure) => {
      if (failure.code === 'NOAUTH') await new Promise(setImmediate); // Only then ioredis 5.3 says why.
      throw failure.code === 'NOAUTH' ? (this.#failure ?? failure) : failure;
    });
    const silence = (): Failure => (this.isSession ? this.server.unanswered() : this.close(this.server.unanswered()));
    const answered = within(Math.max(longest, timeout), answer, silence);
    // No master any more: the next connection may be to one.
    answered.catch((failure: Failure) => failure.code === 'READONLY' && !this.isSession && this.close(failure));
    // Those who cannot wait for long do not end it for others.
    return longest < timeout ? within(longest, answered, () => this.server.unanswered()) : answered;
  }

  #open(): Promise<unknown> {
    return (this.#opened ??= this.#orClosed((this.#connecting = this.#raw.connect()), true));
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
    await this.#open();
    if (this.listeners(channel).includes(wake)) return this.#orClosed(this.#raw.ping());
    this.on(channel, wake); // Now: another caller with the same owner may end before the answer.
    try {
      await this.#orClosed(this.server.library.subscribe(this.#raw, channel, this.#heard, this.#isSharded));
    } catch (error) {
      this.off(channel, wake);
      if (!this.#isSharded || !(error as Failure).isUnknown) throw error;
      this.#isSharded = false; // Redis has SSUBSCRIBE since 7.0.
      return this.listen(channel, wake);
    }
  }

  unlisten(channel: string, wake: () => void): void {
    this.off(channel, wake);
    if (this.listenerCount(channel) > 0 || this.isClosed) return;
    this.server.library.unsubscribe(this.#raw, channel, this.#heard, this.#isSharded).catch(() => {});
  }

  close(reason: unknown = 'the connection was closed'): Failure {
    this.#failure ??= new Failure(reason, this.server.address);
    if (this.isClosed) return this.#failure;
    this.isClosed = true;
    // node-redis leaves a connection open that is destroyed while it is made.
    this.#connecting.catch(() => {}).then(() => this.server.library.close(this.#raw));
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

/** The servers of the user's client. */
export class Servers {
  readonly #all = new Map<Raw, Server>();
  readonly #client: Raw;
  readonly #library: Library;
  readonly isCluster: boolean;
  isClosed = false;

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

  /** The lock's server. */
  async at(name: string): Promise<Server> {
    const { isOpen, status } = this.#client;
    const server = this.isCluster ? undefined : this.#server(this.#client);
    const where = server?.address ?? 'the cluster';
    if (isOpen === false || status === 'end') throw new Failure('ERR the client is not connected: call its connect() before', where);
    if (server) return server;
    const node = await this.#nodeOf(this.#client.slots[calculateSlot(name)]);
    if (!node) throw new Failure('CLUSTERDOWN no node that is known has the slot', where);
    return this.#server(node);
  }

  /** The cluster's own client for a node, which need not be connected. */
  async #nodeOf(shard: Raw): Promise<Raw> {
    if (this.#library === IOREDIS) return this.#client.nodes('master').find(({ options }: Raw) => `${options.host}:${options.port}` === shard?.[0]);
    if (!shard || shard.master.client) return shard?.master.client;
    const made = Promise.resolve(this.#client.nodeClient(shard.master));
    return within(this.timeout, made, () => new Error('no connection in time')).catch((error: unknown) => {
      throw new Failure(error, shard.master.address);
    });
  }

  async masters(): Promise<Server[]> {
    const { masters } = this.#client;
    const nodes = this.#library === IOREDIS ? this.#client.nodes('master') : await Promise.all(masters.map((master: Raw) => this.#nodeOf({ master })));
    return nodes.map((node: Raw) => this.#server(node));
  }

  /** Sends a command by way of the cluster's client, which follows redirections and learns of new nodes by them. */
  async learn(name: string, words: string[], longest: number): Promise<void> {
    const where = 'the cluster';
    // Without a key, any node is asked: that of the slot may be gone.
    const key = this.#client.slots[calculateSlot(name)]?.master?.client?.isReady ? name : undefined;
    const sent = this.#library === IOREDIS ? this.#client.call(...words) : this.#client.sendCommand(key, false, words, PLAIN);
    await within(longest, settled([sent], where), () => new Failure('no answer in time', where));
  }

  close(): void {
    this.isClosed = true;
    for (const server of this.#all.values()) server.close();
  }
}
