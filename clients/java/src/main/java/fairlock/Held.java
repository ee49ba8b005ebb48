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
    private final long since = now();
    private final CompletableFuture<LockLost> lost = new CompletableFuture<>();
    private final boolean isRenewed;
    private Thread holder = Thread.currentThread();
    /** 0: its release has begun. */
    private int count = 1;
    private LockLost loss;
    /** The reply to a release was lost. */
    private volatile boolean isUnheard;
    private volatile long lease;
    /** When the lease is over, and when the next renewal is due. */
    private long end, due;
    private long alarm;

    Held(Ask ask, Map<String, Held> mine) {
        this.ask = ask;
        this.mine = mine;
        locks = ask.locks;
        isRenewed = ask.options.get("renew", true) || ask.own != null;
        mine.put(name(), this);
        if (ask.own != null) {
            ask.own.isKept = true;
            ask.own.ended.thenRun(() -> lose(Cause.CONNECTION));
        }
        isSet(ask.lease, ask.sentAt);
        ask.held = this;
        if (ask.closed != null) {
            lose(Cause.CLOSED);
        }
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

    private synchronized void isSet(long newLease, long sentAt) {
        lease = newLease;
        end = sentAt + newLease;
        isDue(sentAt, newLease / 3);
    }

    private synchronized void isDue(long from, long after) {
        due = isRenewed ? from + after : EVER;
        tick();
    }

    /** Renews when that is due, and sets the alarm for the next time. */
    private synchronized void tick() {
        Time.cancel(alarm);
        if (isOver()) {
            return;
        } else if (now() >= end) {
            lose(Cause.LEASE);
            return;
        } else if (now() >= due) {
            due = now() + Math.max(Time.PAUSE, lease / 3); // Whatever becomes of this one.
            if (holder.isAlive()) {
                renewed(lease);
            }
        }
        alarm = Time.at(Math.min(due, end), this::tick);
    }

    private synchronized boolean isOver() {
        return count == 0 || loss != null;
    }

    private CompletableFuture<Void> renewed(long newLease) {
        long sentAt = now();
        return ask.sent("RENEW", List.of("LEASE", Time.ms(newLease))).thenAccept(reply -> {
            if (!reply.isConfirmed()) {
                throw new FairlockException.NotReplicated(locks.servers.where(name()) + ": too few replicas have confirmed the renewal", null);
            }
            isSet(newLease, sentAt);
        }).exceptionally(error -> {
            FairlockException failure = FairlockException.of("", error);
            if (failure.is("NOTHELD")) {
                lose(Cause.NOTHELD);
                check();
            } else if (failure instanceof FairlockException.Refused) {
                Wire.LOG.log(Level.WARNING, "the lock cannot be renewed: " + failure.getMessage());
            }
            isDue(now(), Math.max(Time.PAUSE, lease / 10));
            throw failure;
        });
    }

    /** Sets the lease anew; returns it. LockLost: the lock was lost. NotReplicated: too few replicas have confirmed the new lease. */
    public Duration renew() {
        return renew(Duration.ofNanos(lease));
    }

    /** Sets another lease, for later renewals as well; returns it. */
    public Duration renew(Duration newLease) {
        long nanos = Time.nanos(LockOptions.checked("lease", newLease, 1)), longest;
        synchronized (this) {
            check();
            holder = Thread.currentThread();
            longest = end - now();
        }
        Locks.finished(Time.again(() -> renewed(nanos), longest));
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
        boolean isHeld = !isOver() && now() < end;
        count += isHeld ? 1 : 0;
        return isHeld;
    }

    /** Gives up the lock. LockLost: it was lost before. Releasing again does nothing. */
    public void release() {
        long longest;
        synchronized (this) {
            if (count == 0 || --count > 0 && loss == null) {
                return;
            }
            count = 0;
            mine.remove(name(), this);
            check();
            Time.cancel(alarm);
            // A hold of Redisson's must not be released twice.
            longest = ask.isOnce ? Math.min(end - now(), ask.options.nanos("releaseTimeout", 5)) : 0;
        }
        boolean isReleased = false;
        try {
            Locks.finished(Time.again(this::released, longest));
            isReleased = true;
        } catch (FairlockException error) {
            if (!error.is("NOTHELD")) {
                throw error;
            } else if (!isUnheard) {
                throw lostBy(Cause.NOTHELD);
            }
        } finally {
            ask.end(isReleased);
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
            loss = lostBy(cause);
            Time.cancel(alarm);
            ask.end(false);
            Locks.background(() -> lost.complete(loss));
            if (cause == Cause.LEASE) {
                released(); // If the server can be reached now, the next one need not wait.
            }
        }
    }

    private LockLost lostBy(Cause cause) {
        Locks.background(() -> locks.tell(hooks -> hooks.onLost(new LockEvent(name(), owner(), token(), null, held(), cause))));
        return new LockLost(locks.servers.where(name()), cause);
    }
}
