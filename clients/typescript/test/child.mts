// A process or thread of its own that holds the lock once, and tells its parent the token: `child.mjs URL NAME`.

import { parentPort, workerData } from 'node:worker_threads';
import { createClient } from 'redis';
import { Locks } from '../src/index.mjs';

const [url, name] = (workerData ?? process.argv.slice(2)) as [string, string];
const client = await createClient({ url }).connect();
const locks = new Locks(client);
const token = await locks.run(name, (held) => held.token);
await locks.close();
client.destroy();
if (parentPort) parentPort.postMessage(token);
else process.send!(token, () => process.connected && process.disconnect());
