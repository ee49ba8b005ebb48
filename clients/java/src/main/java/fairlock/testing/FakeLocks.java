package fairlock.testing;

import fairlock.FairLock;
import fairlock.Held;
import fairlock.Hooks;
import fairlock.LockInfo;
import fairlock.LockLostException.Cause;
import fairlock.LockOptions;
import fairlock.Locks;
import fairlock.internal.FakeServer;
import fairlock.internal.RealLocks;
import fairlock.internal.Settings;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.UUID;

/**
 * Locks without a server. Two of these share no locks. Queue, waits, errors and hooks are the real ones; leases do not end by
 * themselves: {@link #expire} ends them.
 */
public final class FakeLocks implements Locks {
    private static final Duration LONGEST = Duration.ofSeconds(5);

    private final FakeServer server = new FakeServer();
    private final RealLocks locks;

    /** With the default options. */
    public FakeLocks() {
        this(LockOptions.options(), new Hooks() {});
    }

    /** With options and hooks. */
    public FakeLocks(LockOptions defaults, Hooks hooks) {
        String id = UUID.randomUUID().toString();
        locks = new RealLocks(server, new Settings(defaults, LONGEST, LONGEST, LONGEST, hooks, id, false));
    }

    @Override
    public Held acquire(String name, LockOptions options) throws InterruptedException {
        return locks.acquire(name, options);
    }

    @Override
    public Optional<Held> tryAcquire(String name, LockOptions options) throws InterruptedException {
        return locks.tryAcquire(name, options);
    }

    @Override
    public FairLock get(String name, LockOptions options) {
        return locks.get(name, options);
    }

    @Override
    public LockInfo info(String name) {
        return locks.info(name);
    }

    @Override
    public void close() {
        locks.close();
    }

    /** Ends the leases of all that hold the lock. */
    public void expire(String name) {
        locks.lose(server.free(name), Cause.LEASE);
    }

    /** Frees the lock, as FAIRLOCK.BREAK does. */
    public void breakLock(String name) {
        locks.lose(server.free(name), Cause.NOTHELD);
    }

    /** The owners that hold the lock. */
    public List<String> holders(String name) {
        return server.holders(name);
    }

    /** The owners that wait for it, in their order. */
    public List<String> waiting(String name) {
        return server.waiting(name);
    }
}
