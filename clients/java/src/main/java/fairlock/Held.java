package fairlock;

import static fairlock.Time.EVER;
import static fairlock.Time.now;

import fairlock.FairlockException.LockLost;
import fairlock.FairlockException.LockLost.Cause;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** A lock that is held. Its lease is renewed as long as the thread lives that acquired it, or the last one that called {@link #renew}. */
public final class Held implements AutoCloseable {
    private final Ask ask;
    private final Locks locks;
    /** What its thread holds. */
    private final Map<String, Held> mine;
    private final boolean isRenewed;
    private final long since = now();
    private final CompletableFuture<LockLost> lost = new CompletableFuture<>();
    private Thread holder = Thread.currentThread();
    /** 0: its release has begun. */
    private int count = 1;
    private LockLost loss;
    private volatile boolean isUnheard;
    /** When the newest lease was asked for, and its length; when the next renewal is due. */
    private long from, due;
    private volatile long lease;
    private CompletableFuture<Void> alarm = new CompletableFuture<>();

    Held(Ask ask, Map<String, Held> mine) {
        this.ask = ask;
        this.mine = mine;
        locks = ask.locks;
        isRenewed = ask.options.get("renew", true) || ask.own != null;
        isSet(ask.lease, ask.sentAt);
        mine.put(name(), this);
        locks.holds.add(this);
        if (ask.own != null) {
            ask.own.isKept = true;
            ask.own.ended.thenRun(() -> lose(Cause.CONNECTION));
        }
        schedule();
    }

    /** The name of the lock. */
    public String name() {
        return ask.ear.name;
    }

    /** The owner's name at the server. */
    public String owner() {
        return ask.ear.owner;
    }

    /** The fencing token: above 0, and greater than those of all earlier acquisitions. */
    public long token() {
        return ask.token;
    }

    /** Completes as soon as the lock is known to be lost; never after a release has begun. */
    public CompletableFuture<LockLost> lost() {
        return lost;
    }

    /** Whether {@link #lost} has completed. */
    public boolean isLost() {
        return lost.isDone();
    }

    private void isSet(long newLease, long sentAt) {
        lease = newLease;
        from = Math.max(from, sentAt);
        due(from, lease / 3);
    }

    private void due(long now, long later) {
        due = isRenewed ? now + Math.max(Time.PAUSE, later) : EVER;
    }

    private long end() {
        return Math.min(EVER, from + lease);
    }

    /** Renews, if that is due. */
    private synchronized void tick() {
        if (now() >= end()) {
            lose(Cause.LEASE);
        } else if (now() >= due && !isOver()) {
            due(now(), lease / 3); // Whatever becomes of this one.
            if (holder.isAlive()) {
                renewed(lease).exceptionally(Held::logged);
            }
        }
        schedule();
    }

    private synchronized void schedule() {
        alarm.cancel(false);
        if (!isOver()) {
            alarm = Time.at(Math.min(due, end()));
            alarm.thenRun(this::tick);
        }
    }

    private synchronized boolean isOver() {
        return count == 0 || loss != null;
    }

    private CompletableFuture<Void> renewed(long newLease) {
        long sentAt = now();
        return ask.sent("RENEW", List.of("LEASE", Time.ms(newLease))).handle((reply, error) -> {
            FairlockException failure = error != null ? FairlockException.of("", error) : reply.isConfirmed() ? null
                    : new FairlockException.NotReplicated(locks.servers.where(name()) + ": too few replicas have confirmed the renewal", null);
            synchronized (this) {
                if (failure == null) {
                    isSet(newLease, sentAt);
                } else if (failure.is("NOTHELD")) {
                    lose(Cause.NOTHELD);
                    check();
                } else {
                    due(now(), lease / 10);
                }
                schedule();
            }
            if (failure != null) {
                throw failure;
            }
            return null;
        });
    }

    /** Nobody else is told of a refusal. */
    private static Void logged(Throwable error) {
        if (FairlockException.of("", error) instanceof FairlockException.Refused refusal) {
            Wire.LOG.log(Level.WARNING, "the lock cannot be renewed: " + refusal.getMessage());
        }
        return null;
    }

    /** Sets the lease anew; returns it. LockLost: the lock was lost. NotReplicated: too few replicas have confirmed the new lease. */
    public Duration renew() {
        return renew(Duration.ofNanos(lease));
    }

    /** Sets another lease, for later renewals as well; returns it. */
    public Duration renew(Duration newLease) {
        long nanos = Time.nanos(LockOptions.checked("lease", newLease, 1)), end;
        synchronized (this) {
            check();
            holder = Thread.currentThread();
            end = end();
        }
        Locks.finished(Time.again(() -> renewed(nanos), end));
        return newLease;
    }

    /** LockLost: it is lost. */
    private synchronized void check() {
        if (loss != null) {
            throw (LockLost) loss.fillInStackTrace();
        }
    }

    /** Holds it once more; false: it is not held any more. */
    synchronized boolean holdAgain() {
        boolean isHeld = !isOver() && now() < end();
        count += isHeld ? 1 : 0;
        return isHeld;
    }

    /** Gives up the lock. LockLost: it was lost before. Releasing again does nothing. */
    public void release() {
        long end;
        synchronized (this) {
            if (count == 0 || --count > 0 && loss == null) {
                return;
            }
            count = 0;
            mine.remove(name(), this);
            check();
            schedule();
            // A hold of Redisson's must not be released twice.
            end = ask.isOnce ? Math.min(end(), now() + ask.options.nanos("releaseTimeout", 5)) : 0;
        }
        boolean isReleased = false;
        try {
            Locks.finished(Time.again(this::released, end));
            isReleased = true;
        } catch (FairlockException error) {
            if (error.is("NOTHELD") && !isUnheard) {
                lostBy(Cause.NOTHELD);
                check();
            } else if (!error.is("NOTHELD")) {
                throw error;
            }
        } finally {
            end(isReleased);
        }
        locks.tell(hooks -> hooks.onReleased(new LockEvent(name(), owner(), token(), null, held(), null)));
    }

    private CompletableFuture<Wire.Reply> released() {
        return ask.sent("RELEASE", List.of("TOKEN", Long.toString(token())))
                .whenComplete((reply, error) -> isUnheard |= error != null && FairlockException.of("", error).isUnheard);
    }

    @Override
    public void close() {
        release();
    }

    private Duration held() {
        return Duration.ofNanos(now() - since);
    }

    synchronized void lose(Cause cause) {
        if (!isOver()) {
            lostBy(cause);
            end(false);
            Locks.background(() -> lost.complete(loss));
            if (cause == Cause.LEASE) {
                Time.again(this::released, 0); // If the server can be reached now, the next one need not wait.
            }
        }
    }

    private synchronized void lostBy(Cause cause) {
        loss = new LockLost(locks.servers.where(name()), cause);
        Locks.background(() -> locks.tell(hooks -> hooks.onLost(new LockEvent(name(), owner(), token(), null, held(), cause))));
    }

    private void end(boolean isWell) {
        if (locks.holds.remove(this)) {
            ask.end(isWell);
        }
    }
}
