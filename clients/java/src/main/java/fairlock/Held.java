package fairlock;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * A lock that is held. Its lease is renewed as long as the thread lives that acquired it, or that called
 * {@link #renew} last.
 */
public interface Held extends AutoCloseable {
    /** The name of the lock. */
    String name();

    /** Who holds it, as the server knows it. */
    String owner();

    /** The fencing token: above 0, and greater than those of all earlier acquisitions. */
    long token();

    /** Completes as soon as the lock is known not to be its holder's any more; never after a release has begun. */
    CompletableFuture<LockLostException> lost();

    /** Whether {@link #lost} has completed. */
    default boolean isLost() {
        return lost().isDone();
    }

    /** Sets the lease anew; returns what the server has set. */
    Duration renew();

    /** Sets another lease, which the following renewals set as well; returns what the server has set. */
    Duration renew(Duration lease);

    /** Gives up the lock. LockLostException: it was lost before. A second time does nothing. */
    void release();

    @Override
    default void close() {
        release();
    }
}
