package fairlock;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;

/**
 * What is sent next, and how long is waited, without connections, threads and clocks: times are nanoseconds of one steady clock, and are
 * handed in. clients/protocol.md tells it in words.
 */
final class Protocol {
    static final long MS = 1_000_000;
    /** Longer times are cut to what no process lives to see. */
    static final long EVER = Long.MAX_VALUE / 4;
    static final long PAUSE = 50 * MS;
    private static final long START = System.nanoTime();

    private Protocol() {}

    /** What to do: send a command, listen to the owner's channel, pause until a message or for a time. BUSY: the answer to the step before is due. */
    enum Act { ACQUIRE, RENEW, RELEASE, CANCEL, LISTEN, PAUSE, BUSY, OVER }

    record Step(Act act, List<String> words, long until) {}

    static long now() {
        return System.nanoTime() - START;
    }

    static long nanos(Duration duration) {
        return duration.getSeconds() >= EVER / 1_000_000_000 ? EVER : duration.toNanos();
    }

    /** Whole milliseconds, rounded up, for the server. */
    static String ms(long nanos) {
        return Long.toString(Math.max(1, (nanos + MS - 1) / MS));
    }

    /** Completes at that time, by the timer of the JDK; cancelled, it leaves nothing there. */
    static CompletableFuture<Void> at(long time) {
        return new CompletableFuture<Void>().completeOnTimeout(null, time - now(), TimeUnit.NANOSECONDS);
    }

    static List<String> words(Act act, String name, String owner, String... more) {
        List<String> words = new ArrayList<>(List.of("FAIRLOCK." + act, name, owner));
        words.addAll(List.of(more));
        return words;
    }

    /** Failures in a row. */
    static final class Tries {
        private final long longest;
        private long since = -1, pause = PAUSE / 2;

        Tries(long longest) {
            this.longest = longest;
        }

        /** When to try again; -1: not any more. */
        long next(FairlockException failure, long now) {
            since = since < 0 ? now : since;
            pause = Math.min(20 * PAUSE, 2 * pause);
            return failure.isPassing() && now - since < longest ? now + pause : -1;
        }
    }

    /** An acquisition under way. */
    static final class Ask {
        /** It is in the queue. The reply to an ask was lost: the server may do it later. The server has said that it forgets the owner. */
        boolean isHeld, isWaiting, isUnheard, hasLeft;
        /** Why it ended without the lock; it may still have to leave the queue. */
        Exception refusal;
        long token, leaseFrom, refusedAt;
        /** The last token that the owner has released. */
        long released;
        /** Whether an ask may be repeated. */
        final boolean isOnce;
        final long lease;
        /** Spreads the asks of many. */
        double late = ThreadLocalRandom.current().nextDouble(1, 1.1);

        private final String name, owner;
        private final Supplier<String> where;
        private final List<String> words = new ArrayList<>();
        private final boolean isTry, isGiven;
        private final long retryFor, deadline;
        private Tries tries;
        private FairlockException first;
        private Act act = Act.ACQUIRE, sent;
        private long sentAt, notBefore, askAt;
        private boolean isBusy = true, isWoken, isListening, isUnconfirmed;

        /** {@code isListening}: whether the owner's channel is listened to already; {@code where} names lock and server. */
        Ask(String name, String owner, LockOptions options, boolean isOnce, boolean isListening, Supplier<String> where, long now) {
            this.name = name;
            this.owner = owner;
            this.isOnce = isOnce;
            this.where = where;
            this.isListening = isListening;
            long wait = options.get("wait", null) == null ? EVER : options.nanos("wait", 0);
            isTry = wait == 0;
            isGiven = options.get("owner", null) != null;
            lease = options.nanos("lease", 30);
            retryFor = options.nanos("retryTimeout", 30);
            deadline = Math.min(EVER, now + (isTry ? options.nanos("commandTimeout", 5) : wait));
            tries = new Tries(retryFor);
            Integer limit = options.get("limit", null);
            words.addAll(limit != null ? List.of("SHARED", limit.toString()) : options.get("shared", false) ? List.of("SHARED") : List.of());
            words.addAll(options.get("session", false) ? List.of("SESSION") : List.of());
            words.addAll(isOnce ? List.of("ONCE") : List.of());
            words.addAll(isTry ? List.of("NOWAIT") : List.of("ENQUEUE", "PATIENCE", ms(options.nanos("patience", 10))));
        }

        /** It is its turn for the first ask. */
        void begun(long now) {
            isBusy = false;
            then(act, now);
        }

        Step next(long now) {
            if (now >= deadline && refusal == null && !isHeld) {
                leave(late(), now);
            }
            if (act == Act.PAUSE && (isWoken || now >= askAt)) {
                act = isWoken ? Act.ACQUIRE : Act.LISTEN; // Without a message the connection may be dead.
            }
            long until = isBusy ? EVER : act == Act.PAUSE ? askAt : notBefore;
            if (act == Act.OVER && !isBusy) {
                return new Step(act, null, 0);
            } else if (now < until) {
                return new Step(isBusy ? Act.BUSY : Act.PAUSE, null, refusal == null ? Math.min(until, deadline) : until);
            }
            isBusy = true;
            isWoken &= act != Act.ACQUIRE;
            sent = act;
            sentAt = now;
            List<String> message = Protocol.words(act, name, owner);
            message.addAll(act == Act.ACQUIRE || act == Act.RENEW ? List.of("LEASE", ms(lease)) : List.of());
            message.addAll(act == Act.ACQUIRE ? words : act == Act.RELEASE && token > 0 ? List.of("TOKEN", Long.toString(token)) : List.of());
            return new Step(act, message, 0);
        }

        private FairlockException late() {
            String text = where.get() + ": not acquired in time" + (isUnconfirmed ? ": too few replicas have confirmed it" : "")
                    + (first == null ? "" : ": " + first.getMessage());
            return isUnconfirmed ? new FairlockException.NotReplicated(text, first) : new FairlockException.NotInTime(text, first);
        }

        /** The answer to what was sent: a token or another number, nil, or a place in the queue. */
        void replied(List<Object> reply, boolean isConfirmed, long now) {
            isBusy = false;
            first = null;
            tries = new Tries(retryFor);
            isWaiting = reply.size() == 2;
            Long number = (Long) reply.get(0);
            if (isWaiting) {
                token = 0;
                askAt = now + (long) Math.min(EVER, (Long) reply.get(1) * late * MS);
                then(isListening ? Act.PAUSE : Act.LISTEN, now);
            } else if (sent == Act.CANCEL) {
                hasLeft = number == 1;
                // It may have been granted meanwhile; by an owner that was given another caller may hold it.
                act = hasLeft || isGiven && !isUnheard ? Act.OVER : Act.RELEASE;
            } else if (sent == Act.RELEASE) {
                released(now);
            } else if (number == null) {
                leave(late(), now);
            } else {
                token = sent == Act.ACQUIRE ? number : token;
                isUnconfirmed = !isConfirmed;
                granted(now);
            }
        }

        private void granted(long now) {
            // A new master may not know of the release, nor of who held the lock since.
            if (refusal != null || isUnconfirmed || token <= released) {
                then(Act.RELEASE, now);
            } else if (sent == Act.ACQUIRE && now - sentAt >= lease / 3) {
                then(Act.RENEW, now);
            } else if (now - sentAt >= lease) {
                then(Act.ACQUIRE, now);
            } else {
                isHeld = true;
                leaseFrom = sentAt;
                act = Act.OVER;
            }
        }

        /** It is not the holder any more. */
        private void released(long now) {
            released = token > released ? token : 0; // A server that was told once knows.
            token = 0;
            if (refusal == null && isUnconfirmed && isTry) {
                leave(late(), now);
            } else {
                then(refusal != null ? Act.OVER : Act.ACQUIRE, isUnconfirmed ? now + PAUSE : now);
            }
        }

        /** The subscription stands, or has ended again. What was published before is unknown: ask again. */
        void listening(boolean stands, long now) {
            isBusy = false;
            isListening = stands;
            then(Act.ACQUIRE, now);
        }

        /** A message has come, or the subscription has ended. */
        void woken(boolean listens) {
            isWoken = true;
            isListening = listens;
        }

        /** There was no answer, or an error. */
        void failed(FairlockException failure, long now) {
            isBusy = false;
            isUnheard |= failure.isUnheard && (sent == Act.ACQUIRE || sent == Act.CANCEL);
            long again = tries.next(failure, now);
            if (failure.is("NOTHELD") && sent != Act.CANCEL) {
                released(now);
            } else if (refusal != null) {
                boolean isOver = !failure.isPassing() && (sent == Act.CANCEL || sent == Act.RELEASE) || now >= refusedAt + lease;
                then(isOver ? Act.OVER : Act.CANCEL, Math.max(again, now + PAUSE));
            } else {
                first = first == null || !failure.isPassing() ? failure : first;
                then(sent == Act.RELEASE ? sent : Act.ACQUIRE, again);
                if (again < 0) {
                    leave(failure.isPassing() ? new FairlockException.Unavailable(first.getMessage(), first.code(), first) : failure, now);
                }
            }
        }

        /** The next step and its time; or, if the lock is not wanted any more, what is left to do. */
        private void then(Act next, long at) {
            Act leaving = token > 0 ? Act.RELEASE : isWaiting || isUnheard ? Act.CANCEL : Act.OVER;
            act = refusal == null || next == Act.OVER ? next : leaving;
            notBefore = at;
        }

        /** The lock is not wanted any more. False: it is held, or being left. */
        boolean leave(Exception why, long now) {
            if (isHeld || refusal != null) {
                return false;
            }
            refusal = why;
            refusedAt = now;
            isBusy &= sent != null;
            if (!isBusy) { // Else when the answer has come.
                then(Act.CANCEL, now);
            }
            return true;
        }
    }

    /** The lease of a lock that is held. */
    static final class Hold {
        private final boolean isRenewed;
        volatile long lease;
        private long from, due;

        Hold(long lease, long from, boolean isRenewed) {
            this.isRenewed = isRenewed;
            renewed(lease, from);
        }

        /** RENEW, PAUSE until {@link #due}, or OVER: it is lost. */
        Act next(long now) {
            return now >= end() ? Act.OVER : now >= due ? Act.RENEW : Act.PAUSE;
        }

        void renewed(long newLease, long sentAt) {
            lease = newLease;
            from = Math.max(from, sentAt);
            due = isRenewed ? from + lease / 3 : EVER;
        }

        /** Whatever becomes of this renewal, the next one is due after such a part of the lease. */
        void again(long now, int part) {
            due = isRenewed ? now + Math.max(PAUSE, lease / part) : EVER;
        }

        long due() {
            return Math.min(due, end());
        }

        long end() {
            return Math.min(EVER, from + lease);
        }
    }
}
