package fairlock.internal;

import fairlock.Held;
import fairlock.LockLostException;
import fairlock.LockOptions;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/** The user's side of a held lock. */
record HeldLock(Keep keep) implements Held {
    @Override
    public String name() {
        return keep.name;
    }

    @Override
    public String owner() {
        return keep.owner;
    }

    @Override
    public long token() {
        return keep.token;
    }

    @Override
    public CompletableFuture<LockLostException> lost() {
        return keep.lost;
    }

    @Override
    public Duration renew() {
        return keep.renewByHand(null);
    }

    @Override
    public Duration renew(Duration lease) {
        LockOptions.options().lease(lease); // Checks it.
        return keep.renewByHand(lease);
    }

    @Override
    public void release() {
        keep.release();
    }
}
