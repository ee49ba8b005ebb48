package fairlock.internal;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Waits for futures, with or without interrupts. */
final class Waits {
    /** No limit. */
    static final long EVER = Long.MAX_VALUE;

    private Waits() {}

    /** The future's result; throws its Failure, or one for a timeout. */
    static <T> T on(CompletableFuture<T> future, long nanos, boolean isDeaf) throws Failure, InterruptedException {
        try {
            return get(future, nanos, isDeaf);
        } catch (TimeoutException | ExecutionException error) {
            throw Failure.of(error);
        }
    }

    /** The same future, which fails after a time limit. */
    static <T> CompletableFuture<T> within(CompletableFuture<T> future, long nanos) {
        return future.thenApply(value -> value).orTimeout(nanos, TimeUnit.NANOSECONDS);
    }

    /** The same without interrupts: they take effect afterwards. */
    static <T> T deaf(CompletableFuture<T> future, long nanos) throws Failure {
        try {
            return on(future, nanos, true);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Waits until the time is over or the future is done, even if it failed. */
    static void pause(CompletableFuture<?> future, long nanos, boolean isDeaf) throws InterruptedException {
        try {
            get(future, Math.max(0, nanos), isDeaf);
        } catch (TimeoutException | ExecutionException error) {
            // The time is over, or the future has failed.
        }
    }

    private static <T> T get(CompletableFuture<T> future, long nanos, boolean isDeaf)
            throws TimeoutException, ExecutionException, InterruptedException {
        long end = System.nanoTime() + nanos;
        boolean wasInterrupted = false;
        try {
            while (true) {
                try {
                    return nanos == EVER
                            ? future.get()
                            : future.get(Math.max(0, end - System.nanoTime()), TimeUnit.NANOSECONDS);
                } catch (InterruptedException error) {
                    if (!isDeaf) {
                        throw error;
                    }
                    wasInterrupted = true;
                }
            }
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }
}
