package fairlock.internal;

import fairlock.FairLock;
import fairlock.LockInfo;
import fairlock.LockLostException.Cause;
import fairlock.NotInTimeException;
import fairlock.NotReplicatedException;
import fairlock.UnavailableException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;

/**
 * A {@link java.util.concurrent.locks.Lock} whose holds the server counts, as RLock's. A repeated command would add a
 * hold, or take one away: after a lost reply the server is asked for the count. Only this thread changes it.
 */
record ThreadLock(Core core, String name, Options options) implements FairLock {
    /** The owner's hold; 0 holds: it does not hold the lock. */
    record Holds(long holds, long token, long lease) {}

    @Override
    public void lock() {
        try {
            acquire(null, true);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        acquire(null, false);
    }

    @Override
    public boolean tryLock() {
        try {
            return tryAcquire(Duration.ZERO, true);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    @Override
    public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
        if (Thread.interrupted()) {
            throw new InterruptedException();
        }
        return tryAcquire(Duration.of(Math.max(0, time), unit.toChronoUnit()), false);
    }

    private boolean tryAcquire(Duration wait, boolean isDeaf) throws InterruptedException {
        try {
            acquire(wait, isDeaf);
            return true;
        } catch (NotReplicatedException error) {
            throw error;
        } catch (NotInTimeException error) {
            return false;
        }
    }

    private String owner() {
        return core.settings.ownerId() + ":" + Thread.currentThread().getId();
    }

    /** This thread's hold; null: none, or it is lost. */
    private Keep mine() {
        Keep keep = core.counted.get().get(name);
        return keep == null || keep.isLost() ? null : keep;
    }

    private void acquire(Duration wait, boolean isDeaf) throws InterruptedException {
        Keep keep = mine();
        Ask ask = new Ask(core, name, owner(), options.waiting(wait), isDeaf, before(keep));
        Ask.Grant grant = ask.acquire();
        if (keep != null && keep.token == grant.token() && keep.holds() > 0) {
            keep.countedAgain(grant);
            return;
        }
        if (keep != null) {
            keep.lose(Cause.NOTHELD); // This is news.
        }
        new Keep(ask, grant, core.counted.get());
    }

    private Ask.Before before(Keep keep) {
        if (core.settings.isOwnerIdShared()) { // Redisson may have added holds for this thread.
            Holds now = holds(core, name, owner(), Options.nanos(core.settings.retryTimeout()));
            return new Ask.Before(now.holds(), now.token());
        }
        return keep == null ? new Ask.Before(0, 0) : new Ask.Before(keep.holds(), keep.token);
    }

    /** The owner's hold. */
    static Holds holds(Core core, String name, String owner, long longest) {
        LockInfo info = info(core, name, longest);
        boolean isOurs = owner.equals(info.owner());
        return isOurs ? new Holds(info.holds(), info.token() == null ? 0 : info.token(), info.lease()) : new Holds(0, 0, 0);
    }

    private static LockInfo info(Core core, String name, long longest) {
        try {
            return core.info(name, longest);
        } catch (Failure failure) {
            throw failure.translated(name);
        }
    }

    @Override
    public void unlock() {
        Keep keep = core.counted.get().get(name);
        if (keep != null && keep.isLost()) {
            keep.forget();
            throw keep.loss();
        }
        if (keep == null && !core.settings.isOwnerIdShared()) {
            throw new IllegalMonitorStateException(name + " is not held by this thread");
        }
        boolean isLast = keep != null && keep.holds() == 1;
        if (isLast) {
            keep.stopRenewing();
        }
        if (!releaseOne(before(keep).holds())) {
            if (keep == null) {
                throw new IllegalMonitorStateException(name + " is not held by this thread");
            }
            keep.lose(Cause.NOTHELD);
            keep.forget();
            throw keep.loss();
        }
        if (keep != null) {
            keep.countedDown();
        }
    }

    /** Whether there was a hold to release. */
    private boolean releaseOne(long before) {
        long end = System.nanoTime() + Options.nanos(core.settings.releaseTimeout());
        Tries tries = new Tries(name, Options.nanos(core.settings.releaseTimeout()));
        while (true) {
            try {
                core.control(name, 0, "FAIRLOCK.RELEASE", name, owner());
                return true;
            } catch (Failure failure) {
                if (failure.is("NOTHELD")) {
                    return false;
                }
                throw failure.translated(name);
            } catch (UnavailableException error) {
                long left = Math.max(0, end - System.nanoTime());
                if (holds(core, name, owner(), left).holds() < before) {
                    return true;
                }
                Core.quietly(core.closing, tries.after(Failure.broken(error.getMessage(), error), left));
            }
        }
    }

    @Override
    public boolean isLocked() {
        return now().owner() != null;
    }

    @Override
    public boolean isHeldByCurrentThread() {
        return getHoldCount() > 0;
    }

    @Override
    public int getHoldCount() {
        Keep keep = core.counted.get().get(name);
        boolean isLost = keep != null && keep.isLost();
        return isLost ? 0 : (int) holds(core, name, owner(), core.settings.commandNanos()).holds();
    }

    @Override
    public long remainTimeToLive() {
        LockInfo now = now();
        return now.owner() == null ? -2 : now.lease();
    }

    private LockInfo now() {
        return info(core, name, core.settings.commandNanos());
    }

    @Override
    public long token() {
        Keep keep = mine();
        if (keep == null) {
            throw new IllegalMonitorStateException(name + " is not held by this thread");
        }
        return keep.token;
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock on a server has no conditions");
    }
}
