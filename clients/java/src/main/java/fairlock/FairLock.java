package fairlock;

import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;

/**
 * A {@link Lock} that threads of many processes share. Like Redisson's RLock it is held by a thread and reentrant, by the owner
 * {@code <id of Locks>:<id of the thread>}. All methods throw a FairlockException for the server's errors.
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

    /** The name of the lock. */
    public String name() {
        return name;
    }

    @Override
    public void lock() {
        try {
            locks.lock(name, options, true);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        locks.lock(name, options, false);
    }

    @Override
    public boolean tryLock() {
        try {
            return tryLock(Duration.ZERO, true);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        return tryLock(Duration.of(Math.max(0, time), unit.toChronoUnit()), false);
    }

    private boolean tryLock(Duration wait, boolean isDeaf) throws InterruptedException {
        try {
            locks.lock(name, options.wait(wait), isDeaf);
            return true;
        } catch (FairlockException.NotReplicated error) {
            throw error;
        } catch (FairlockException.NotInTime error) {
            return false;
        }
    }

    private Held mine() {
        Held held = locks.mine().get(name);
        if (held == null) {
            throw new IllegalMonitorStateException(name + " is not held by this thread");
        }
        return held;
    }

    /** IllegalMonitorStateException: this thread does not hold the lock; if it has lost it, a LockLost is the cause. */
    @Override
    public void unlock() {
        try {
            mine().release();
        } catch (FairlockException.LockLost error) {
            throw (IllegalMonitorStateException) new IllegalMonitorStateException(error.getMessage()).initCause(error);
        }
    }

    /** Whether the lock is held, by the server's answer. */
    public boolean isLocked() {
        return locks.info(name).owner() != null;
    }

    /** Whether this thread holds the lock, and is not known to have lost it. */
    public boolean isHeldByCurrentThread() {
        return getHoldCount() > 0;
    }

    /** How often this thread holds the lock. */
    public int getHoldCount() {
        Held held = locks.mine().get(name);
        return held == null ? 0 : held.count();
    }

    /** Milliseconds until the lock frees itself; -1: never, -2: it is free. */
    public long remainTimeToLive() {
        LockInfo info = locks.info(name);
        return info.owner() == null ? -2 : info.lease();
    }

    /** The fencing token of this thread's hold. */
    public long token() {
        return mine().token();
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock on a server has no conditions");
    }
}
