// Connections by ioredis, and the servers of its clients.

import type { RedisOptions } from 'ioredis';
import { hostAndPort, unset } from './wire.js';
import type { Address, Source, Wire } from './wire.js';

type Settings = RedisOptions & Record<string, unknown>;

/** The servers of a Redis or a Cluster of ioredis. */
export function sourceOfIoredis({ status, isCluster, options, startupNodes }: Record<string, any>): Source | undefined {
  if (typeof status !== 'string' || typeof isCluster !== 'boolean' || typeof options !== 'object') return undefined;
  if (isCluster) {
    const nodes: Settings[] = startupNodes.map(asSettings);
    const settings = { ...nodes[0], ...options.redisOptions };
    return source('cluster', nodes.map(addressOf), (address) => ({ ...settings, ...hostAndPort(address), db: 0 }));
  }
  if (!options.sentinels?.length) return source('one', [options.path ?? addressOf(options)], () => options);
  const { sentinels, name, sentinelUsername, sentinelPassword, sentinelTLS, enableTLSForSentinelMode, tls, ...node } = options;
  const ofSentinel = { username: sentinelUsername, password: sentinelPassword, tls: sentinelTLS, family: node.family };
  const ofNode = { ...node, tls: enableTLSForSentinelMode ? tls : undefined };
  const addresses = sentinels.map(({ host = '127.0.0.1', port = 26379 }) => `${host}:${port}`);
  return source('sentinel', addresses, (address, isSentinel) => ({ ...(isSentinel ? ofSentinel : ofNode), ...hostAndPort(address) }), name);
}

type SettingsFor = (address: Address, isSentinel: boolean) => Settings;

function source(kind: Source['kind'], addresses: Address[], settings: SettingsFor, master?: string): Source {
  return { kind, addresses, master, wire: (address, timeout, closed, isSentinel) => wire(settings(address, isSentinel), timeout, closed) };
}

function addressOf({ host, port }: Settings): Address {
  return `${host || '127.0.0.1'}:${port || 6379}`;
}

/** The address of a cluster's node, given to ioredis as a port, a URL or options. */
function asSettings(node: unknown): Settings {
  if (typeof node === 'number') return { port: node };
  if (typeof node === 'object') return node as Settings;
  const text = String(node);
  const { protocol, hostname, port, username, password } = new URL(text.includes('//') ? text : `redis://${text}`);
  const said = Object.entries({ username, password }).filter(([, value]) => value);
  const settings = Object.fromEntries(said.map(([key, value]) => [key, decodeURIComponent(value)]));
  return { host: hostname, port: Number(port), ...settings, ...(protocol === 'rediss:' ? { tls: {} } : {}) };
}

async function wire(settings: Settings, timeout: number, closed: (error?: Error) => void): Promise<Wire> {
  const { Redis } = await import('ioredis');
  const client = new Redis({
    ...settings,
    ...{ lazyConnect: true, connectTimeout: timeout, disconnectTimeout: 1, enableReadyCheck: false, enableOfflineQueue: true },
    ...{ retryStrategy: () => null, reconnectOnError: null, maxRetriesPerRequest: null, autoResubscribe: false },
    ...{ protocol: 2, stringNumbers: false, keyPrefix: '', readOnly: false, enableAutoPipelining: false },
    ...unset('Connector', 'sentinels', 'commandTimeout', 'socketTimeout', 'blockingTimeout', 'monitor', 'scripts'),
  } as RedisOptions);
  const wakes = new Map<string, Set<() => void>>();
  const heard = (channel: string) => wakes.get(channel)?.forEach((wake) => wake());
  client.on('message', heard).on('smessage', heard);
  // 'moved' means that a subscription was refused; one whose slot moves away ends in an error.
  client.on('error', closed).on('end', () => closed()).on('moved', () => closed());
  return {
    connect: () => client.connect(),
    // ioredis does not transform the replies to commands in capitals.
    send: ([command = '', ...rest]) => client.call(command, ...rest),
    subscribe(channel, wake, isSharded) {
      wakes.set(channel, (wakes.get(channel) ?? new Set()).add(wake));
      return isSharded ? client.ssubscribe(channel) : client.subscribe(channel);
    },
    async unsubscribe(channel, wake, isSharded) {
      const others = wakes.get(channel);
      others?.delete(wake);
      if (others?.size) return;
      wakes.delete(channel);
      await (isSharded ? client.sunsubscribe(channel) : client.unsubscribe(channel));
    },
    destroy: () => client.disconnect(),
    isReply: (error) => error instanceof Error && error.name === 'ReplyError',
  };
}
