// Timers for any length of time.

const PIECE = 2 ** 31 - 1; // ms: the longest that a timer of JavaScript takes, 24.8 days

/** Rings once; what no timer can hold is waited for in pieces. The function that it returns stops it. */
export function after(wait: number, ring: () => void, keepsAlive = true): () => void {
  let timer: NodeJS.Timeout;
  const arm = (left: number): void => {
    const piece = Math.min(Math.max(0, left), PIECE);
    timer = setTimeout(() => (left > piece ? arm(left - piece) : ring()), piece);
    if (!keepsAlive) timer.unref();
  };
  arm(wait);
  return () => clearTimeout(timer);
}

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
    const stop = after(longest, () => setImmediate(ring));
    work.then(resolve, reject).finally(() => ((isDone = true), stop()));
  });
}
