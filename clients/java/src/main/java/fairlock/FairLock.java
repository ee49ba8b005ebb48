package fairlock;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A {@link Lock} that threads of many processes share. Like Redisson's RLock it is held by a thread and reentrant, by the owner
 * {@code <id of Locks>:<id of the thread>}. All methods throw a FairlockException for the server's errors. {@link Locks#info} tells who holds it.
 */
public final class FairLock implements Lock {
    private final Locks locks;
    private final String name;
    private final LockOptions options;

    FairLock(Locks locks, String name, LockOptions options) {
        this.locks = locks;
        this.name = name;
        this.options = options;
    }

    @Override
    public void lock() {
        undisturbed(options);
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        locks.lock(name, options, false);
    }

    @Override
    public boolean tryLock() {
        return Locks.inTime(() -> undisturbed(options.wait(Duration.ZERO))).isPresent();
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        LockOptions all = options.wait(Duration.of(Math.max(0, time), unit.toChronoUnit()));
        return Locks.inTime(() -> locks.lock(name, all, false)).isPresent();
    }

    /** An interrupt waits until it is over. */
    private Held undisturbed(LockOptions how) {
        try {
            return locks.lock(name, how, true);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** This thread's hold. IllegalMonitorStateException: it has none. */
    public Held held() {
        Held held = locks.mine(name);
        if (held == null) {
            throw new IllegalMonitorStateException(name + " is not held by this thread");
        }
        return held;
    }

    /** IllegalMonitorStateException: this thread does not hold the lock; if it has lost it, a LockLost is the cause. */
    @Override
    public void unlock() {
        try {
            held().release();
        } catch (FairlockException.LockLost error) {
            throw (IllegalMonitorStateException) new IllegalMonitorStateException(error.getMessage()).initCause(error);
        }
    }

    /** Whether this thread holds the lock, and is not known to have lost it. */
    public boolean isHeldByCurrentThread() {
        Held held = locks.mine(name);
        return held != null && !held.lost().isDone();
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock on a server has no conditions");
    }
}
