package fairlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/** Times are nanoseconds of one steady clock. What fails and may pass is tried again. */
final class Time {
    static final long MS = 1_000_000;
    /** Longer times are cut to what no process lives to see. */
    static final long EVER = Long.MAX_VALUE / 4;
    static final long PAUSE = 50 * MS;
    private static final long START = System.nanoTime();
    private static final NavigableMap<Long, Runnable> ALARMS = new TreeMap<>();
    /** When the timer rings next. */
    private static long rings = Long.MAX_VALUE;

    private Time() {}

    static long now() {
        return System.nanoTime() - START;
    }

    static long nanos(Duration duration) {
        return duration.getSeconds() >= EVER / 1_000_000_000 ? EVER : duration.toNanos();
    }

    /** Whole milliseconds, rounded up, for the server. */
    static String ms(long nanos) {
        return Long.toString(Math.max(1, (nanos + MS - 1) / MS));
    }

    /**
     * Does it at that time; returns what {@link #cancel} takes. The timer of the JDK is set for the first alarm of all, and rings in vain if that was
     * cancelled: waking its thread for each one costs as much as a command.
     */
    static synchronized long at(long time, Runnable work) {
        long alarm = time;
        while (ALARMS.putIfAbsent(alarm, work) != null) {
            alarm++;
        }
        set();
        return alarm;
    }

    static synchronized void cancel(long alarm) {
        ALARMS.remove(alarm);
    }

    private static synchronized void set() {
        if (!ALARMS.isEmpty() && ALARMS.firstKey() < rings) {
            long time = ALARMS.firstKey();
            rings = time;
            CompletableFuture.delayedExecutor(time - now(), TimeUnit.NANOSECONDS, Runnable::run).execute(() -> ring(time));
        }
    }

    private static void ring(long time) {
        List<Runnable> due = new ArrayList<>();
        synchronized (Time.class) {
            if (time != rings) {
                return; // An earlier alarm was set meanwhile, and has rung.
            }
            while (!ALARMS.isEmpty() && ALARMS.firstKey() <= now()) {
                due.add(ALARMS.pollFirstEntry().getValue());
            }
            rings = Long.MAX_VALUE;
            set();
        }
        due.forEach(work -> CompletableFuture.completedFuture(null).thenRun(work)); // What one throws touches no other.
    }

    /** Failures in a row; the first is null after a success. */
    static final class Tries {
        FairlockException first;
        private final long longest;
        private long end, pause;

        Tries(long longest) {
            this.longest = longest;
        }

        /** When to try again what began then. Throws what does not pass, and Unavailable if it lasts too long. */
        long next(FairlockException failure, long began) {
            if (!failure.isPassing()) {
                throw failure;
            } else if (first == null) {
                first = failure;
                end = Math.min(EVER, began + longest);
                pause = PAUSE / 2;
            }
            if (now() >= end) {
                throw new FairlockException.Unavailable(first.getMessage(), first.code(), first);
            }
            pause = Math.min(20 * PAUSE, 2 * pause);
            return Math.min(now() + pause, end);
        }
    }

    /** Does it until it succeeds, again after passing failures, for that long. */
    static <T> CompletableFuture<T> again(Supplier<CompletableFuture<T>> work, long longest) {
        return again(work, new Tries(longest));
    }

    private static <T> CompletableFuture<T> again(Supplier<CompletableFuture<T>> work, Tries tries) {
        long began = now();
        return CompletableFuture.completedFuture(work).thenCompose(Supplier::get).exceptionallyCompose(error -> {
            long next = tries.next(FairlockException.of("", error), began);
            CompletableFuture<Void> pause = new CompletableFuture<>();
            at(next, () -> pause.complete(null));
            return pause.thenCompose(now -> again(work, tries));
        });
    }
}
