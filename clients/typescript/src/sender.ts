// One command to a lock's master: to the module, or as a script where the server has none; and confirmed by replicas.

import type { Line, Server, Servers } from './clients.js';
import { Failure, codeOf } from './errors.js';
import { ms, warn } from './options.js';
import type { Options } from './options.js';
import { neededBy, scripted } from './scripts.js';
import { within } from './timers.js';

/** The reply to a command, null for NOTHELD; whether replicas have confirmed it, or why they could not be asked; and when it was sent. */
export interface Answer { reply: unknown; isConfirmed: boolean; refusal: Failure | undefined; sent: number; address: string }

/** A command, by a connection of its own if it is given one; `confirm` says which replicas have to confirm it. */
interface Call { words: string[]; longest: number; confirm?: Options; line?: Line | undefined }

const LEARN = 1000; // ms, at most

export class Sender {
  /** Whether the server has the module, by its first answer. */
  isNative: boolean | undefined;

  constructor(readonly servers: Servers, private readonly module: 'auto' | 'required') {}

  async send(call: Call): Promise<Answer> {
    const { words: [, name = ''], longest, line } = call;
    try {
      return await this.#sendTo(line?.server ?? (await this.servers.at(name)), call);
    } catch (error) {
      if (!this.servers.isCluster || !(error instanceof Failure && error.isPassing)) throw error;
      if (error.code === 'ASK' && !line) return this.#sendAround(call, error);
      if (error.code === 'MOVED') line?.close(error);
      // The client learns by it where the slot is now. It is what the user may run, and the server knows.
      const words = [this.isNative === false ? 'PTTL' : 'FAIRLOCK.INFO', name];
      await this.servers.learn(name, words, Math.min(longest, LEARN)).catch(() => {});
      throw error;
    } finally {
      if (this.servers.isClosed) this.servers.close(); // What was opened for this.
    }
  }

  /** The lock's keys are at the node that imports its slot: each of the other masters points elsewhere. */
  async #sendAround(call: Call, error: Failure): Promise<Answer> {
    const answers = (await this.servers.masters()).map((server) => this.#sendTo(server, call, [['ASKING']]));
    return Promise.any(answers).catch(({ errors }: AggregateError) => {
      throw errors.find((each) => !['MOVED', 'ASK'].includes(codeOf(each) ?? '')) ?? error;
    });
  }

  async #sendTo(server: Server, { words, longest, confirm, line }: Call, before: string[][] = []): Promise<Answer> {
    const count = least(server, confirm);
    const asked = typeof count === 'number' ? count : await within(longest, count, () => server.unanswered());
    const wait = asked > 0 ? [['WAIT', String(asked), ms(confirm!.syncTimeout)]] : [];
    const sent = performance.now();
    const link = line ?? server.line(asked > 0 ? 'confirm' : 'commands');
    const [reply, confirmed] = await this.#worded(words, async (its) => {
      const replies = await link.call([...before, its, ...wait], longest);
      if (replies[before.length] instanceof Failure) throw replies[before.length];
      return replies.slice(before.length);
    }).catch((error: unknown) => {
      if (codeOf(error) !== 'NOTHELD') throw error;
      return [null];
    });
    const refusal = confirmed instanceof Failure && Number(reply) > 0 ? confirmed : undefined;
    return { reply, isConfirmed: asked === 0 || Number(confirmed) >= asked, refusal, sent, address: server.address };
  }

  async #worded<T>(words: string[], send: (words: string[]) => Promise<T>): Promise<T> {
    const script = scripted(words);
    if (script && this.isNative === false) {
      return send(script.short).catch((error: unknown) => {
        if (codeOf(error) !== 'NOSCRIPT') throw error;
        return send(script.whole);
      });
    }
    try {
      const result = await send(words);
      this.isNative ??= true;
      return result;
    } catch (error) {
      if (!(error instanceof Failure && (error.isUnknown || error.isDenied))) throw error;
      const needing = neededBy(words.slice(3));
      if (needing && error.isUnknown) throw error.noModule(`${needing} needs the fairlock module, which the server does not have`);
      if (!script || this.module === 'required') throw error;
      if (this.isNative !== false) this.#warn(error);
      this.isNative = false;
      return this.#worded(words, send);
    }
  }

  #warn({ address, isDenied }: Failure): void {
    const [why, cure] = isDenied
      ? ['the user may not run the commands of the fairlock module', 'Allow them']
      : ['the server does not have the fairlock module', 'Load it'];
    const what = `${cure} for hand-off, sessions and shared locks, or set module to "required" to refuse`;
    warn(`${address}: ${why}: locks are taken by scripts. ${what}`);
  }
}

/** How many replicas must confirm. */
function least(server: Server, confirm: Options | undefined): number | Promise<number> {
  return confirm?.syncTimeout ? (confirm.minReplicas ?? server.replicas()) : 0;
}
