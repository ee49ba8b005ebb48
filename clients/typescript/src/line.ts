// A connection: answers within their time, errors of this package, and scripts where the server needs them.

import { Broken, Refusal } from './errors.js';
import { scripted } from './scripts.js';
import type { Address, Source, Wire } from './wire.js';

export class Line {
  isClosed = false;
  /** Its server does not have the module, or denies it: the commands are sent as scripts. */
  isScripted = false;
  /** How it denies it. */
  denied: Refusal | undefined;
  whenDenied = (_: Refusal) => {};
  readonly isUnderSentinel: boolean;
  /** How many scripts were sent a second time, after later commands, because the server had forgotten them. */
  resent = 0;
  #isWithModule = false;
  #maySendScripts = false;
  /** The scripts that this connection has sent in full. */
  readonly #sent = new Set<string>();
  #wire: Wire | undefined;
  #isSharded: boolean;
  readonly #listeners: (() => void)[] = [];
  /** Rejects the awaited answers. */
  readonly #awaited = new Set<(error: Error) => void>();

  private constructor(kind: Source['kind'], readonly address: Address, private readonly timeout: number) {
    this.#isSharded = kind === 'cluster';
    this.isUnderSentinel = kind === 'sentinel';
  }

  static async open(source: Source, address: Address, timeout: number, isSentinel = false): Promise<Line> {
    const line = new Line(source.kind, address, timeout);
    const wire = await source.wire(address, timeout, (error) => line.#close(error ?? new Error('the connection was closed')), isSentinel);
    line.#wire = wire;
    await line.#within(timeout, () => wire.connect());
    return line;
  }

  /** Finds out whether the server has the module: it then refuses a command without arguments in another way. */
  async findModule(): Promise<void> {
    const reply = await this.#send(['FAIRLOCK.ACQUIRE'], this.timeout).catch((error: unknown) => error);
    if (!(reply instanceof Refusal)) throw reply;
    this.#maySendScripts = true;
    this.isScripted = reply.isForWantOfModule;
    this.#isWithModule = !this.isScripted;
  }

  /** Another connection to the server has found the module. */
  findsModule(): void {
    if (!this.isScripted) return;
    this.isScripted = false;
    this.#isWithModule = true;
  }

  /** The user may not use the module. */
  deny(refusal: Refusal): void {
    if (!this.#maySendScripts) return;
    this.isScripted = true;
    this.denied = refusal;
  }

  /** Rejects with a Refusal, or with Broken; an answer that does not come in time closes the connection. */
  async call(words: string[], timeout = this.timeout, isAsking = false): Promise<unknown> {
    const script = this.#maySendScripts ? scripted(words) : undefined;
    if (!script) return this.#send(words, timeout, isAsking);
    if (!this.isScripted) {
      try {
        return await this.#send(words, timeout, isAsking);
      } catch (error) {
        if (!(error instanceof Refusal && error.isDenied)) throw error;
        this.whenDenied(error);
        // No script can do that.
        if (words.includes('SHARED', 3)) throw error;
        this.resent += 1;
      }
    }
    const { short, whole } = script;
    const isFirst = !this.#sent.has(short[1]!);
    this.#sent.add(short[1]!);
    return this.#send(isFirst ? whole : short, timeout, isAsking).catch((error: unknown) => {
      if (!(error instanceof Refusal) || error.code !== 'NOSCRIPT') throw error;
      this.resent += 1;
      return this.#send(whole, timeout, isAsking);
    });
  }

  async #send(words: string[], timeout: number, isAsking = false): Promise<unknown> {
    if (isAsking) this.#within(timeout, (wire) => wire.send(['ASKING'])).catch(() => {});
    try {
      return await this.#within(timeout, (wire) => wire.send(words));
    } catch (error) {
      if (!(error instanceof Refusal && error.isForWantOfModule && this.#isWithModule)) throw error;
      // It was unloaded. The next connection learns that.
      this.destroy();
      throw new Broken(error.message, { cause: error });
    }
  }

  async subscribe(channel: string, wake: () => void): Promise<void> {
    try {
      await this.#within(this.timeout, (wire) => wire.subscribe(channel, wake, this.#isSharded));
    } catch (error) {
      // Redis has SSUBSCRIBE since 7.0.
      if (!(error instanceof Refusal && this.#isSharded && error.isUnknown)) throw error;
      this.#isSharded = false;
      await this.subscribe(channel, wake);
    }
  }

  async unsubscribe(channel: string, wake: () => void): Promise<void> {
    await this.#within(this.timeout, (wire) => wire.unsubscribe(channel, wake, this.#isSharded));
  }

  /** Called once, when it has closed for any reason. It does not reconnect: another one is opened then. */
  whenClosed(listener: () => void): void {
    if (this.isClosed) listener();
    else this.#listeners.push(listener);
  }

  destroy(): void {
    this.#close(new Error('the connection was closed'));
  }

  #close(error: Error): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.#wire?.destroy();
    for (const reject of this.#awaited) reject(error);
    for (const listener of this.#listeners) listener();
  }

  async #within<T>(timeout: number, ask: (wire: Wire) => Promise<T>): Promise<T> {
    let end = (_: Error) => {};
    let timer: NodeJS.Timeout | undefined;
    const ended = new Promise<never>((_, reject) => (end = reject));
    this.#awaited.add(end);
    if (timeout !== Infinity) timer = setTimeout(() => this.#close(new Broken(`${this.address}: no answer in ${timeout} ms`)), timeout);
    const answer = ask(this.#wire!);
    try {
      return await Promise.race([answer, ended]);
    } catch (error) {
      answer.catch(() => {});
      throw this.#failure(error as NodeJS.ErrnoException);
    } finally {
      this.#awaited.delete(end);
      clearTimeout(timer);
    }
  }

  #failure(error: NodeJS.ErrnoException): Refusal | Broken {
    if (error instanceof Broken) return error;
    if (this.#wire?.isReply(error)) return new Refusal(error.message, this.address);
    this.#close(error);
    const shown = error.code === 'ECONNREFUSED' ? 'Connection refused' : error.message || String(error);
    return new Broken(`${this.address}: ${shown}`, { cause: error });
  }
}
