// Timers for any length of time.

/** In ms, 24.8 days: no timer of JavaScript takes more. Who is called by then looks at the clock again. */
export const LONGEST_TIMER = 2 ** 31 - 1;

/** What the work results in, or what `late` says if that takes longer. */
export function within<T>(longest: number, work: Promise<T>, late: () => T | Error): Promise<T> {
  return new Promise((resolve, reject) => {
    let isDone = false;
    const ring = (): void => {
      const instead = isDone || late();
      if (instead instanceof Error) reject(instead);
      else resolve(instead as T);
    };
    // If this process is what is late, the answer may be there already.
    const timer = setTimeout(() => setImmediate(ring), Math.min(longest, LONGEST_TIMER));
    work.then(resolve, reject).finally(() => ((isDone = true), clearTimeout(timer)));
  });
}
