package fairlock;

import fairlock.FairlockException.LockLost;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

/** A lock that is held. Its lease is renewed as long as the thread lives that acquired it, or the last one that called {@link #renew}. */
public final class Held implements AutoCloseable {
    private final Keeper keeper;
    private final AtomicBoolean isReleased = new AtomicBoolean();

    Held(Keeper keeper) {
        this.keeper = keeper;
    }

    /** The name of the lock. */
    public String name() {
        return keeper.name;
    }

    /** The owner's name at the server. */
    public String owner() {
        return keeper.owner;
    }

    /** The fencing token: above 0, and greater than those of all earlier acquisitions. */
    public long token() {
        return keeper.token;
    }

    /** Completes as soon as the lock is known to be lost; never after a release has begun. */
    public CompletableFuture<LockLost> lost() {
        return keeper.lost;
    }

    /** Whether {@link #lost} has completed. */
    public boolean isLost() {
        return keeper.lost.isDone();
    }

    /** Sets the lease anew; returns it. LockLost: the lock was lost. NotReplicated: too few replicas have confirmed the new lease. */
    public Duration renew() {
        return keeper.renew(null);
    }

    /** Sets another lease, for later renewals as well; returns it. */
    public Duration renew(Duration lease) {
        return keeper.renew(LockOptions.checked("lease", lease, 1));
    }

    /** Gives up the lock. LockLost: it was lost before. Releasing again does nothing, but after Unavailable. */
    public void release() {
        if (isReleased.compareAndSet(false, true)) {
            try {
                keeper.release();
            } catch (FairlockException.Unavailable error) {
                isReleased.set(false);
                throw error;
            }
        }
    }

    @Override
    public void close() {
        release();
    }
}
