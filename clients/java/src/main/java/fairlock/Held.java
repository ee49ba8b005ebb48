package fairlock;

import static fairlock.Protocol.now;

import fairlock.FairlockException.LockLost;
import fairlock.FairlockException.LockLost.Cause;
import fairlock.Protocol.Act;
import java.lang.System.Logger.Level;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/** A lock that is held. Its lease is renewed as long as the thread lives that acquired it, or the last one that called {@link #renew}. */
public final class Held implements AutoCloseable {
    private final Asker asker;
    private final Locks locks;
    /** What its thread holds. */
    private final Map<String, Held> mine;
    private final Protocol.Hold hold;
    private final long since = now();
    private final CompletableFuture<LockLost> lost = new CompletableFuture<>();
    private Thread holder = Thread.currentThread();
    private int count = 1;
    private boolean isEnding;
    private boolean isUnheard;
    private LockLost loss;
    private CompletableFuture<Void> alarm = new CompletableFuture<>();

    Held(Asker asker, Map<String, Held> mine) {
        this.asker = asker;
        this.mine = mine;
        locks = asker.locks;
        hold = new Protocol.Hold(asker.ask.lease, asker.ask.leaseFrom, asker.options.get("renew", true) || asker.own != null);
        mine.put(name(), this);
        locks.holds.add(this);
        if (asker.own != null) {
            asker.own.isKept = true;
            asker.own.ended.thenRun(() -> lose(Cause.CONNECTION));
        }
        tick();
    }

    /** The name of the lock. */
    public String name() {
        return asker.ear.name;
    }

    /** The owner's name at the server. */
    public String owner() {
        return asker.ear.owner;
    }

    /** The fencing token: above 0, and greater than those of all earlier acquisitions. */
    public long token() {
        return asker.ask.token;
    }

    /** Completes as soon as the lock is known to be lost; never after a release has begun. */
    public CompletableFuture<LockLost> lost() {
        return lost;
    }

    /** Whether {@link #lost} has completed. */
    public boolean isLost() {
        return lost.isDone();
    }

    /** Does what is due. */
    private synchronized void tick() {
        Act act = hold.next(now());
        if (act == Act.OVER) {
            lose(Cause.LEASE);
        } else if (act == Act.RENEW && !isOver()) {
            hold.again(now(), 3);
            if (holder.isAlive()) {
                renewed(hold.lease).exceptionally(Held::logged);
            }
        }
        schedule();
    }

    private synchronized void schedule() {
        alarm.cancel(false);
        if (!isOver()) {
            alarm = Protocol.at(hold.due());
            alarm.thenRun(this::tick);
        }
    }

    private synchronized boolean isOver() {
        return isEnding || loss != null;
    }

    private CompletableFuture<Void> renewed(long lease) {
        long sentAt = now();
        return sent(Act.RENEW, "LEASE", Protocol.ms(lease)).handle((reply, error) -> {
            FairlockException failure = error != null ? FairlockException.of(locks.where(name()), error, true) : reply.isConfirmed() ? null
                    : new FairlockException.NotReplicated(locks.where(name()) + ": too few replicas have confirmed the renewal", null);
            synchronized (this) {
                if (failure == null) {
                    hold.renewed(lease, sentAt);
                } else if (failure.is("NOTHELD")) {
                    lose(Cause.NOTHELD);
                    check();
                } else {
                    hold.again(now(), 10);
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
        if (FairlockException.of("", error, true) instanceof FairlockException.Refused refusal) {
            Wire.LOG.log(Level.WARNING, "the lock cannot be renewed: " + refusal.getMessage());
        }
        return null;
    }

    private CompletableFuture<Wire.Reply> sent(Act act, String... more) {
        return CompletableFuture.completedFuture(act).thenCompose(it ->
                locks.wire.send(name(), asker.options, asker.own, Protocol.words(it, name(), owner(), more)));
    }

    /** Sets the lease anew; returns it. LockLost: the lock was lost. NotReplicated: too few replicas have confirmed the new lease. */
    public Duration renew() {
        return renew(Duration.ofNanos(hold.lease));
    }

    /** Sets another lease, for later renewals as well; returns it. */
    public Duration renew(Duration lease) {
        long nanos = Protocol.nanos(LockOptions.checked("lease", lease, 1));
        synchronized (this) {
            check();
            holder = Thread.currentThread();
        }
        Locks.finished(Locks.again(() -> renewed(nanos), hold.end()));
        return lease;
    }

    /** LockLost: it is lost. */
    private synchronized void check() {
        if (loss != null) {
            throw (LockLost) loss.fillInStackTrace();
        }
    }

    /** Holds it once more; false: it is not held any more. */
    synchronized boolean holdAgain() {
        boolean isHeld = !isOver() && hold.next(now()) != Act.OVER;
        count += isHeld ? 1 : 0;
        return isHeld;
    }

    synchronized int count() {
        return isOver() ? 0 : count;
    }

    /** Gives up the lock. LockLost: it was lost before. Releasing again does nothing, but after Unavailable. */
    public void release() {
        synchronized (this) {
            if (count == 0 || --count > 0 && loss == null) {
                return;
            }
            count = 0;
            mine.remove(name(), this);
            check();
            isEnding = true;
            schedule();
        }
        boolean isReleased = false;
        try {
            // A hold that was counted must not be released twice.
            long end = Math.min(hold.end(), now() + asker.options.nanos("releaseTimeout", 5));
            Locks.finished(Locks.again(this::released, asker.ask.isOnce ? end : 0));
            isReleased = true;
        } catch (FairlockException error) {
            if (!error.is("NOTHELD")) {
                count = 1;
                mine.putIfAbsent(name(), this);
                throw error;
            } else if (!isUnheard) {
                lost(Cause.NOTHELD);
                check();
            }
        }
        end(isReleased);
        locks.tell(hooks -> hooks.onReleased(new LockEvent(name(), owner(), token(), null, held(), null)));
    }

    private CompletableFuture<Wire.Reply> released() {
        return sent(Act.RELEASE, "TOKEN", Long.toString(token()))
                .whenComplete((reply, error) -> isUnheard |= error != null && FairlockException.of("", error, true).isUnheard);
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
            lost(cause);
            Locks.background(() -> lost.complete(loss));
            if (cause == Cause.LEASE) {
                Locks.again(this::released, 0); // If the server can be reached now, the next one need not wait.
            }
        }
    }

    private void lost(Cause cause) {
        loss = new LockLost(locks.where(name()), cause);
        end(false);
        Locks.background(() -> locks.tell(hooks -> hooks.onLost(new LockEvent(name(), owner(), token(), null, held(), cause))));
    }

    private void end(boolean isWell) {
        asker.end(isWell);
        locks.holds.remove(this);
    }
}
