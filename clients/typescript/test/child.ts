// A process or thread of its own that holds the lock once, and tells its parent the token: `child.js URL NAME`.

import { parentPort, workerData } from 'node:worker_threads';
import { createClient } from 'redis';
import { Locks } from '../src/index.js';

const [url, name] = (workerData ?? process.argv.slice(2)) as [string, string];
const locks = new Locks(createClient({ url }));
const token = await locks.run(name, (held) => held.token);
await locks.close();
if (parentPort) parentPort.postMessage(token);
else process.send!(token, () => process.connected && process.disconnect());
