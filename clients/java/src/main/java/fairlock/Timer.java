package fairlock;

import java.time.Duration;
import java.util.concurrent.*;

/** The one timer for all waits and holds. Times are nanoseconds of a steady clock; longer ones are cut to what no process lives to see. */
final class Timer extends ScheduledThreadPoolExecutor {
    static final long MS = 1_000_000;
    static final long EVER = Long.MAX_VALUE / 4;
    private static final long START = System.nanoTime();

    /** Its thread starts at once: later none may be left. */
    Timer() {
        super(1, work -> {
            Thread thread = new Thread(work, "fairlock");
            thread.setDaemon(true);
            return thread;
        }, new DiscardPolicy());
        setRemoveOnCancelPolicy(true);
        prestartAllCoreThreads();
    }

    static long now() {
        return System.nanoTime() - START;
    }

    static long nanos(Duration duration) {
        return duration.getSeconds() >= EVER / 1_000_000_000 ? EVER : duration.toNanos();
    }

    /** The time so many milliseconds later. */
    static long later(long time, double milliseconds) {
        return Math.min(EVER, time + (long) Math.min(EVER, milliseconds * MS));
    }

    /** Whole milliseconds, rounded up, for the server. */
    static String ms(long nanos) {
        return Long.toString(Math.max(1, (nanos + MS - 1) / MS));
    }

    /** Work that does not block. After a shutdown it is done at once. */
    Future<?> at(long time, Runnable work) {
        if (isShutdown()) {
            work.run();
            return CompletableFuture.completedFuture(null);
        }
        return schedule(work, time - now(), TimeUnit.NANOSECONDS);
    }

    CompletableFuture<Void> pause(long until) {
        CompletableFuture<Void> end = new CompletableFuture<>();
        at(until, () -> end.complete(null));
        return end;
    }

    /** Fails if the work takes longer. */
    <T> CompletableFuture<T> within(long nanos, CompletionStage<? extends T> work) {
        CompletableFuture<T> result = new CompletableFuture<>();
        if (work.toCompletableFuture().isDone()) {
            return work.<T>thenApply(value -> value).toCompletableFuture();
        }
        Future<?> end = at(now() + nanos, () -> result.completeExceptionally(new TimeoutException("no answer in time")));
        work.whenComplete((value, error) -> {
            end.cancel(false);
            if (error == null) {
                result.complete(value);
            } else {
                result.completeExceptionally(error);
            }
        });
        return result;
    }
}
