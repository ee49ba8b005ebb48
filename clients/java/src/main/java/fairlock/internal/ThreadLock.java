package fairlock.internal;

import fairlock.FairLock;
import fairlock.LockLostException;
import fairlock.LockLostException.Cause;
import fairlock.NotInTimeException;
import fairlock.NotReplicatedException;
import fairlock.UnavailableException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;

/**
 * A {@link java.util.concurrent.locks.Lock} whose holds the server counts, as RLock's. A repetition would add a hold, or take
 * one away: where a reply was lost the server is asked how many there are. Nobody but this thread changes them.
 */
record ThreadLock(Core core, String name, Options options) implements FairLock {
    /** How the owner holds the lock; 0 holds: it does not. */
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

    /** What this thread holds; null: nothing, or it is lost. */
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
            keep.lose(Cause.NOTHELD); // Which was not known until now.
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

    /** How the owner holds the lock. */
    static Holds holds(Core core, String name, String owner, long longest) {
        List<Object> info = core.controlled(name, longest, "FAIRLOCK.INFO", name).reply();
        if (!owner.equals(field(info, "owner"))) {
            return new Holds(0, 0, 0);
        }
        return new Holds(number(info, "holds"), number(info, "token"), number(info, "lease"));
    }

    private static Object field(List<Object> map, String name) {
        return map.get(map.indexOf(name) + 1);
    }

    private static long number(List<Object> map, String name) {
        return field(map, name) instanceof Long number ? number : 0;
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
            throw new LockLostException(name, Cause.NOTHELD);
        }
        if (keep != null) {
            keep.countedDown();
        }
    }

    /** Whether there was a hold to release. */
    private boolean releaseOne(long before) {
        long end = System.nanoTime() + Options.nanos(core.settings.releaseTimeout());
        Tries tries = new Tries(Options.nanos(core.settings.releaseTimeout()));
        while (true) {
            try {
                core.control(name, 0, "FAIRLOCK.RELEASE", name, owner());
                return true;
            } catch (Failure failure) {
                if (failure.is("NOTHELD")) {
                    return false;
                }
                throw core.translated(name, failure);
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
    public boolean isHeldByCurrentThread() {
        return mine() != null;
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
