// The clients that Locks are made from: of node-redis, or of ioredis where FAIRLOCK_CLIENT says so.

import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster } from 'redis';
import type { Client } from '../src/index.js';

const IS_IOREDIS = process.env['FAIRLOCK_CLIENT'] === 'ioredis';

export interface User {
  username?: string;
  password?: string;
}

/** It may have a read timeout for its own commands. */
export function clientOf(url: string, user: User = {}, socketTimeout?: number): Client {
  if (IS_IOREDIS) return new Redis(url, { lazyConnect: true, commandTimeout: socketTimeout, ...user });
  return createClient({ url, ...user, ...(socketTimeout ? { socket: { socketTimeout } } : {}) });
}

export function clusterOf(urls: string[], user: User = {}): Client {
  if (IS_IOREDIS) return new Cluster(urls, { lazyConnect: true, redisOptions: user });
  return createCluster({ rootNodes: urls.map((url) => ({ url })), defaults: user });
}

/** At the master `locks` of one sentinel. */
export function sentinelOf(port: number, user: User = {}): Client {
  const sentinels = [{ host: '127.0.0.1', port }];
  if (IS_IOREDIS) return new Redis({ sentinels, name: 'locks', lazyConnect: true, ...user });
  return { name: 'locks', sentinelRootNodes: sentinels, nodeClientOptions: user };
}
