package fairlock.internal;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadFactory;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/** Starts work at its time, on daemon threads that end when there is none. */
final class Clock implements AutoCloseable {
    private final ScheduledThreadPoolExecutor timer = new ScheduledThreadPoolExecutor(1, named("fairlock-clock"));
    private final ExecutorService workers = new ThreadPoolExecutor(
            0, Integer.MAX_VALUE, 1, TimeUnit.SECONDS, new SynchronousQueue<>(), named("fairlock"));

    Clock() {
        timer.setRemoveOnCancelPolicy(true);
        timer.setKeepAliveTime(1, TimeUnit.SECONDS);
        timer.allowCoreThreadTimeOut(true);
    }

    private static ThreadFactory named(String name) {
        return work -> {
            Thread thread = new Thread(work, name);
            thread.setDaemon(true);
            return thread;
        };
    }

    void start(Runnable work) {
        try {
            workers.execute(work);
        } catch (RejectedExecutionException error) {
            // Locks is closed: nothing is renewed or withdrawn any more.
        }
    }

    /** Returns a handle to cancel it. */
    Runnable later(long nanos, Runnable work) {
        if (nanos <= 0) {
            start(work);
            return () -> {};
        }
        try {
            Future<?> entry = timer.schedule(() -> start(work), nanos, TimeUnit.NANOSECONDS);
            return () -> entry.cancel(false);
        } catch (RejectedExecutionException error) {
            return () -> {};
        }
    }

    @Override
    public void close() {
        timer.shutdownNow();
        workers.shutdown();
    }
}
