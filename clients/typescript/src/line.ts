// A connection, on node-redis.

import { createClient, ErrorReply } from 'redis';
import type { RedisClientOptions, RedisClientType } from 'redis';
import { Broken, Refusal } from './errors.js';

/** `host:port`, or the path of a socket. */
export type Address = string;
export type Settings = RedisClientOptions;

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

export class RedisLine implements Line {
  isClosed = false;
  #listeners: (() => void)[] = [];

  private constructor(
    private readonly client: RedisClientType,
    readonly address: Address,
    private readonly isSharded: boolean,
    private readonly timeout: number,
  ) {
    const closed = () => this.destroy();
    client.on('error', closed).on('end', closed).on('sharded-channel-moved', closed);
  }

  static async open(settings: Settings, address: Address, timeout: number, isSharded = false): Promise<RedisLine> {
    const client = createClient({
      ...settings,
      // Another connection would be another session, and other subscriptions: Locks opens it where it is needed.
      socket: { ...settings.socket, reconnectStrategy: false, socketTimeout: undefined, connectTimeout: timeout },
      ...unset('RESP', 'commandOptions', 'pingInterval', 'commandsQueueMaxLength', 'disableOfflineQueue'),
      // For RESP3 only.
      ...unset('clientSideCache', 'emitInvalidate', 'maintNotifications'),
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
        reject(new Broken(`${this.address}: no answer in ${timeout} ms`));
        this.destroy();
      }, timeout);
    });
    try {
      return await Promise.race([answer, late]);
    } catch (error) {
      answer.catch(() => {});
      if (error instanceof ErrorReply) throw new Refusal(error.message, this.address);
      if (error instanceof Broken) throw error;
      this.destroy();
      throw new Broken(`${this.address}: ${shown(error as NodeJS.ErrnoException)}`, { cause: error });
    } finally {
      clearTimeout(timer);
    }
  }
}

function shown(error: NodeJS.ErrnoException): string {
  return error.code === 'ECONNREFUSED' ? 'Connection refused' : error.message || String(error);
}

function unset(...keys: string[]): Record<string, undefined> {
  return Object.fromEntries(keys.map((key) => [key, undefined]));
}
