package fairlock;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * A lock that is held. Its lease is renewed as long as the thread lives that acquired it, or the last one that called
 * {@link #renew}.
 */
public interface Held extends AutoCloseable {
    /** The name of the lock. */
    String name();

    /** The owner's name at the server. */
    String owner();

    /** The fencing token: above 0, and greater than those of all earlier acquisitions. */
    long token();

    /** Completes as soon as the lock is known to be lost; never after a release has begun. */
    CompletableFuture<LockLostException> lost();

    /** Whether {@link #lost} has completed. */
    default boolean isLost() {
        return lost().isDone();
    }

    /** Sets the lease anew; returns the new lease. */
    Duration renew();

    /** Sets another lease, for later renewals as well; returns the new lease. */
    Duration renew(Duration lease);

    /** Gives up the lock. LockLostException: it was lost before. Releasing again does nothing. */
    void release();

    @Override
    default void close() {
        release();
    }
}
