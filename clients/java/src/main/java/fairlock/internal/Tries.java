package fairlock.internal;

import fairlock.UnavailableException;
import java.util.concurrent.TimeUnit;

/** How long, and how often, something that fails for the time being is tried again. */
final class Tries {
    static final long FIRST_PAUSE = TimeUnit.MILLISECONDS.toNanos(50);
    private static final long LONGEST_PAUSE = TimeUnit.SECONDS.toNanos(1);
    private static final int REDIRECTS = 16; // in a row, before they count as failures

    private final long longest;
    private long since;
    private boolean hasFailed;
    private long pause = FIRST_PAUSE;
    private int redirects;

    Tries(long longest) {
        this.longest = longest;
    }

    void succeeded() {
        hasFailed = false;
        pause = FIRST_PAUSE;
        redirects = 0;
    }

    boolean mayRedirect() {
        return ++redirects <= REDIRECTS;
    }

    /** How long to pause before the next try; UnavailableException: it has been long enough. */
    long after(Failure failure, long left) {
        long now = System.nanoTime();
        since = hasFailed ? since : now;
        hasFailed = true;
        long spent = now - since;
        if (spent >= longest) {
            String text = "not available for " + longest / 1_000_000 + " ms: " + failure.getMessage();
            throw new UnavailableException(text, failure.code, failure);
        }
        long next = Math.min(Math.min(pause, longest - spent), left);
        pause = Math.min(pause * 2, LONGEST_PAUSE);
        return Math.max(0, next);
    }
}
