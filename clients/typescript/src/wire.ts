// What the package needs from a client library. Each has an adapter, which imports its library when it connects:
// node-redis.ts, ioredis.ts.

/** `host:port`, or the path of a socket. */
export type Address = string;

/** A connection that does not reconnect: it would be another session, without its subscriptions. */
export interface Wire {
  connect(): Promise<unknown>;
  send(words: string[]): Promise<unknown>;
  /** Resolves when it is confirmed. Each channel may have several listeners. */
  subscribe(channel: string, wake: () => void, isSharded: boolean): Promise<unknown>;
  unsubscribe(channel: string, wake: () => void, isSharded: boolean): Promise<unknown>;
  destroy(): void;
  /** Whether the subscription is confirmed, and the connection open. */
  isReply(error: unknown): boolean;
}

/** The servers of a user's client. */
export interface Source {
  readonly kind: 'one' | 'sentinel' | 'cluster';
  /** The addresses of the server, the sentinels, or the first nodes. */
  readonly addresses: Address[];
  /** The sentinels' name for it. */
  readonly master?: string | undefined;
  /** A connection with the user's credentials and so on; `closed` is called when it can no longer be used. */
  wire(address: Address, timeout: number, closed: (error?: Error) => void, isSentinel: boolean): Promise<Wire>;
}

export function hostAndPort(address: Address): { host: string; port: number } {
  const colon = address.lastIndexOf(':');
  return { host: address.slice(0, colon), port: Number(address.slice(colon + 1)) };
}

export function unset(...keys: string[]): Record<string, undefined> {
  return Object.fromEntries(keys.map((key) => [key, undefined]));
}
