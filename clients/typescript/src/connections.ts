// The connections of a Locks: those that all callers share, by kind and server, and those of their own.

import { Confirming, connectedReplicas } from './confirming.js';
import { Closed, Refusal } from './errors.js';
import type { Line } from './line.js';
import type { Options } from './options.js';
import type { Route } from './route.js';
import type { Address } from './wire.js';

function warning(why: string, cure: string): string {
  return `${why}: locks are taken by scripts. ${cure} for hand-off, sessions and shared locks, or set module to "required" to refuse`;
}
const WITHOUT = warning('the server does not have the fairlock module', 'Load it');
const DENIED = warning('the user may not run the commands of the fairlock module', 'Allow them');

/**
 * `control`: releases, and other commands that no waiter may delay; `renew`: renewals; `ask`: asks; `sync`:
 * acquisitions that replicas confirm; `wake`: messages to waiters.
 */
export type Kind = 'control' | 'renew' | 'ask' | 'sync' | 'wake';

export class Connections {
  readonly #shared = new Map<string, Promise<Line>>();
  readonly #confirming = new WeakMap<Line, Confirming>();
  readonly #lines = new Set<Line>();
  /** Whether the server has the module, by the newest connection. */
  isNative: boolean | undefined;
  isClosed = false;
  /** Servers whose module the user may not use. */
  readonly #denied = new Map<Address, Refusal>();
  #hasWarned = false;

  constructor(
    private readonly route: Route,
    private readonly options: Options,
    private readonly hasClosed: (kind: Kind) => void,
  ) {}

  shared(kind: Kind, address: Address): Promise<Line> {
    const key = `${kind} ${address}`;
    const known = this.#shared.get(key);
    if (known) return known;
    const opened = this.#open(kind, address);
    this.#shared.set(key, opened);
    const forget = () => {
      if (this.#shared.get(key) === opened) this.#shared.delete(key);
    };
    const closed = () => {
      forget();
      this.hasClosed(kind);
    };
    opened.then((line) => line.whenClosed(closed), forget);
    return opened;
  }

  /** Looks for the module again, on a new connection. */
  async look(address: Address): Promise<void> {
    (await this.#open('ask', address)).destroy();
  }

  async #open(kind: Kind, address: Address): Promise<Line> {
    const line = await this.open(address);
    if (kind === 'wake' || this.options.module === 'required') return line;
    try {
      await line.findModule();
    } catch (error) {
      line.destroy();
      throw error;
    }
    const denied = this.#denied.get(address);
    line.whenDenied = (refusal) => this.#deny(refusal);
    if (denied) line.deny(denied);
    if (line.isScripted) this.#warn(address, WITHOUT);
    else for (const other of this.#at(address)) other.findsModule();
    this.isNative = !line.isScripted;
    return line;
  }

  #warn(address: Address, text: string): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    process.emitWarning(`${address}: ${text}`, 'FairlockWarning');
  }

  #deny(refusal: Refusal): void {
    this.#denied.set(refusal.address, refusal);
    for (const line of this.#at(refusal.address)) line.deny(refusal);
    this.isNative = false;
    this.#warn(refusal.address, DENIED);
  }

  #at(address: Address): Line[] {
    return [...this.#lines].filter((line) => line.address === address);
  }

  async confirming(kind: 'renew' | 'sync', address: Address): Promise<Confirming> {
    const line = await this.shared(kind, address);
    const known = this.#confirming.get(line) ?? new Confirming(line, this.options.commandTimeout);
    this.#confirming.set(line, known);
    return known;
  }

  /** The connections that a holder needs, opened before it holds the lock: it must not run out of descriptors then. */
  async forHolders(address: Address): Promise<void> {
    await Promise.all([this.shared('control', address), this.shared('renew', address)]);
  }

  async open(address: Address): Promise<Line> {
    if (this.isClosed) throw new Closed('Locks is closed');
    const line = await this.route.open(address);
    this.#lines.add(line);
    line.whenClosed(() => this.#lines.delete(line));
    if (this.isClosed) line.destroy();
    await this.#mustBeMaster(line);
    return line;
  }

  async #mustBeMaster(line: Line): Promise<void> {
    try {
      await connectedReplicas(line);
    } catch (error) {
      // If no replica has to confirm, ROLE is not needed, and the user may lack the permission.
      if (error instanceof Refusal && error.code === 'NOPERM' && this.options.syncTimeout === 0) return;
      line.destroy();
      throw error;
    }
  }

  /** Closes the connections to a former master. */
  leave(address: Address): void {
    for (const line of this.#at(address)) line.destroy();
  }

  /** Closes the connections to servers that are not masters, by others' answers or their own. */
  async keepMasters(masters: Set<Address>): Promise<void> {
    for (const { address } of [...this.#lines]) if (!masters.has(address)) this.leave(address);
    const controls = [...this.#shared].filter(([key]) => key.startsWith('control'));
    await Promise.all(controls.map(([, opened]) => opened.then((line) => this.#mustBeMaster(line)).catch((error: unknown) => {
      if (error instanceof Refusal) this.leave(error.address);
    })));
  }

  close(): void {
    this.isClosed = true;
    this.route.close();
    for (const line of [...this.#lines]) line.destroy();
  }
}
