package fairlock.internal;

import fairlock.UnavailableException;
import java.util.concurrent.TimeUnit;

/** How long, and how often, a temporary failure is tried again. */
final class Tries {
    static final long FIRST_PAUSE = TimeUnit.MILLISECONDS.toNanos(50);
    private static final long LONGEST_PAUSE = TimeUnit.SECONDS.toNanos(1);
    private static final int REDIRECTS = 16; // in a row, before they count as failures

    private final String name;
    private final long longest;
    private long since;
    private Failure first;
    private long pause = FIRST_PAUSE;
    private int redirects;

    /** For a lock. */
    Tries(String name, long longest) {
        this.name = name;
        this.longest = longest;
    }

    void succeeded() {
        first = null;
        pause = FIRST_PAUSE;
        redirects = 0;
    }

    boolean mayRedirect() {
        return ++redirects <= REDIRECTS;
    }

    /** The first failure since the last success, or null. */
    Failure first() {
        return first;
    }

    void failed(Failure failure) {
        if (first == null) {
            first = failure;
            since = System.nanoTime();
        }
    }

    /** How long to pause before the next try; UnavailableException: the time is up. */
    long after(Failure failure, long left) {
        failed(failure);
        long spent = System.nanoTime() - since;
        if (spent >= longest) {
            String time = longest == 0 ? "" : " for " + Options.said(longest);
            throw new UnavailableException(name + ": not available" + time + ": " + first.text(), failure.code, first);
        }
        long next = Math.min(Math.min(pause, longest - spent), left);
        pause = Math.min(pause * 2, LONGEST_PAUSE);
        return Math.max(0, next);
    }
}
