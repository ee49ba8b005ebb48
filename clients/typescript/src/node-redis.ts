// Connections by node-redis, and the servers of its clients.

import type { RedisClientOptions, RedisClientType } from 'redis';
import { hostAndPort, unset } from './wire.js';
import type { Address, Source, Wire } from './wire.js';

type Settings = RedisClientOptions;

/** The servers of a client by `createClient` or `createCluster`, or of the options for `createSentinel`. */
export function sourceOfNodeRedis(given: Record<string, any>): Source | undefined {
  const { _options: cluster, options, sentinelRootNodes, name } = given;
  if (sentinelRootNodes?.length && name) {
    const addresses = sentinelRootNodes.map(({ host, port }: { host: string; port: number }) => `${host}:${port}`);
    const { nodeClientOptions: nodes, sentinelClientOptions: sentinels } = given;
    return source('sentinel', addresses, (address, isSentinel) => at((isSentinel ? sentinels : nodes) ?? {}, address), name);
  }
  if (cluster?.rootNodes) {
    const { rootNodes: [first = {}], defaults = {} } = cluster;
    const settings = { ...defaults, ...first, socket: { ...defaults.socket, ...first.socket } };
    return source('cluster', cluster.rootNodes.map(addressOf), (address) => at(settings, address));
  }
  // Only a node-redis client has both; other objects must not mean 127.0.0.1:6379.
  if (typeof given['isReady'] !== 'boolean' || typeof options !== 'object') return undefined;
  return source('one', [options.socket?.path ?? addressOf(options)], () => options);
}

type SettingsFor = (address: Address, isSentinel: boolean) => Settings;

function source(kind: Source['kind'], addresses: Address[], settings: SettingsFor, master?: string): Source {
  return { kind, addresses, master, wire: (address, timeout, closed, isSentinel) => wire(settings(address, isSentinel), timeout, closed) };
}

function addressOf({ url, socket }: Settings): Address {
  if (url) {
    const { hostname, port } = new URL(url);
    return `${hostname}:${port || 6379}`;
  }
  const { host, port } = (socket ?? {}) as { host?: string; port?: number };
  return `${host ?? '127.0.0.1'}:${port ?? 6379}`;
}

function at({ url: _, ...settings }: Settings, address: Address): Settings {
  return { ...settings, socket: { ...settings.socket, ...hostAndPort(address) } } as Settings;
}

async function wire(settings: Settings, timeout: number, closed: (error?: Error) => void): Promise<Wire> {
  const { ErrorReply, createClient } = await import('redis');
  const client = createClient({
    ...settings,
    socket: { ...settings.socket, reconnectStrategy: false, socketTimeout: undefined, connectTimeout: timeout },
    ...unset('RESP', 'commandOptions', 'pingInterval', 'commandsQueueMaxLength', 'disableOfflineQueue'),
    // For RESP3 only.
    ...unset('clientSideCache', 'emitInvalidate', 'maintNotifications'),
  } as object) as RedisClientType;
  client.on('error', closed).on('end', () => closed()).on('sharded-channel-moved', () => closed());
  return {
    connect: () => client.connect(),
    send: (words) => client.sendCommand(words),
    subscribe: async (channel, wake, isSharded) => (isSharded ? client.sSubscribe(channel, wake) : client.subscribe(channel, wake)),
    unsubscribe: async (channel, wake, isSharded) => (isSharded ? client.sUnsubscribe(channel, wake) : client.unsubscribe(channel, wake)),
    destroy: () => client.isOpen && client.destroy(),
    isReply: (error) => error instanceof ErrorReply,
  };
}
