package fairlock.internal;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Waiting for futures, by threads that can be interrupted and by those that must not be. */
final class Waits {
    /** No limit. */
    static final long EVER = Long.MAX_VALUE;

    private Waits() {}

    /** What the future comes to; its Failure, or one that says that it has not come in time. */
    static <T> T on(CompletableFuture<T> future, long nanos, boolean isDeaf) throws Failure, InterruptedException {
        try {
            return get(future, nanos, isDeaf);
        } catch (TimeoutException | ExecutionException error) {
            throw Failure.of(error);
        }
    }

    /** The same future, which fails if it has come to nothing after so long. */
    static <T> CompletableFuture<T> within(CompletableFuture<T> future, long nanos) {
        return future.thenApply(value -> value).orTimeout(nanos, TimeUnit.NANOSECONDS);
    }

    /** The same for a thread that is not to be interrupted here; it is afterwards. */
    static <T> T deaf(CompletableFuture<T> future, long nanos) throws Failure {
        try {
            return on(future, nanos, true);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Waits until the time is over or the future is done, whatever it comes to. */
    static void pause(CompletableFuture<?> future, long nanos, boolean isDeaf) throws InterruptedException {
        try {
            get(future, Math.max(0, nanos), isDeaf);
        } catch (TimeoutException | ExecutionException error) {
            // That was the time, or the end of what could end it earlier.
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
