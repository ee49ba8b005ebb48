package fairlock;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;

/**
 * What is sent next, and how long is waited, without connections, threads and clocks: times are nanoseconds of one steady clock, and are
 * handed in. clients/protocol.md tells it in words.
 */
final class Protocol {
    private Protocol() {}

    /** What to do: send a command, listen to the owner's channel, pause until a message or for a time. BUSY: the answer to the step before is due. */
    enum Act { ACQUIRE, RENEW, RELEASE, CANCEL, LISTEN, PAUSE, BUSY, OVER }

    record Step(Act act, List<String> words, long until) {}

    /** What is asked for. A try joins no queue; {@code late} of 1 to 1.1 spreads the asks of many; {@code where} names lock and server. */
    record Wish(String name, String owner, List<String> options, boolean isTry, long lease, long patience, long longest, long retryFor, double late,
            Supplier<String> where) {}

    static List<String> words(Act act, String name, String owner, String... more) {
        List<String> words = new ArrayList<>(List.of("FAIRLOCK." + act, name, owner));
        words.addAll(List.of(more));
        return words;
    }

    /** Failures in a row. */
    static final class Tries {
        static final long PAUSE = 50 * Timer.MS;
        private final long longest;
        private long since = -1;
        private long pause = PAUSE / 2;

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
        boolean isHeld;
        /** Why it ended without the lock; it may still have to leave the queue. */
        Exception refusal;
        /** Whether it is in the queue. */
        boolean isWaiting;
        /** Whether the reply to an ask was lost: the server may do it later. */
        boolean isUnheard;
        /** Whether the server has said that it forgets the owner. */
        boolean hasLeft;
        long token;
        long leaseFrom;

        private final Wish wish;
        final long deadline;
        private Tries tries;
        private FairlockException first;
        private Act act = Act.ACQUIRE, sent;
        private long sentAt, notBefore, askAt, leaveUntil;
        private boolean isBusy, isWoken, isListening, isUnconfirmed;

        /** @param isListening whether the owner's channel is listened to already */
        Ask(Wish wish, boolean isListening, long now) {
            this.wish = wish;
            this.isListening = isListening;
            deadline = Math.min(Timer.EVER, now + wish.longest);
            tries = new Tries(wish.retryFor);
        }

        Step next(long now) {
            if (now >= deadline && refusal == null && !isHeld) {
                leave(late(), now);
            }
            if (act == Act.PAUSE && (isWoken || now >= askAt)) {
                act = isWoken ? Act.ACQUIRE : Act.LISTEN; // Without a message the connection may be dead.
            }
            long pause = act == Act.PAUSE ? askAt : notBefore;
            if (isBusy || act == Act.OVER) {
                return new Step(isBusy ? Act.BUSY : act, null, 0);
            } else if (now < pause) {
                return new Step(Act.PAUSE, null, refusal == null ? Math.min(pause, deadline) : pause);
            }
            isBusy = true;
            isWoken &= act != Act.ACQUIRE;
            sent = act;
            sentAt = now;
            return new Step(act, words(), 0);
        }

        private List<String> words() {
            List<String> words = Protocol.words(act, wish.name, wish.owner);
            if (act == Act.ACQUIRE || act == Act.RENEW) {
                words.addAll(List.of("LEASE", Timer.ms(wish.lease)));
            } else if (act == Act.RELEASE && token > 0) {
                words.addAll(List.of("TOKEN", Long.toString(token)));
            }
            if (act == Act.ACQUIRE) {
                words.addAll(wish.options);
                words.addAll(wish.isTry ? List.of("NOWAIT") : List.of("ENQUEUE", "PATIENCE", Timer.ms(wish.patience)));
            }
            return words;
        }

        private FairlockException late() {
            String text = wish.where.get() + ": not acquired in time" + (isUnconfirmed ? ": too few replicas have confirmed it" : "")
                    + (first == null ? "" : ": " + first.getMessage());
            return isUnconfirmed ? new FairlockException.NotReplicated(text, first) : new FairlockException.NotInTime(text, first);
        }

        /** The answer to what was sent: a token or another number, nil, or a place in the queue. */
        void replied(List<Object> reply, boolean isConfirmed, long now) {
            isBusy = false;
            first = null;
            tries = new Tries(wish.retryFor);
            isWaiting = reply.size() == 2;
            Long number = (Long) reply.get(0);
            if (isWaiting) {
                token = 0;
                askAt = Timer.later(now, (Long) reply.get(1) * wish.late);
                then(isListening ? Act.PAUSE : Act.LISTEN, now);
            } else if (sent == Act.CANCEL) {
                hasLeft = number == 1;
                act = hasLeft || !isUnheard ? Act.OVER : Act.RELEASE;
            } else if (sent == Act.RELEASE) {
                released(now);
            } else if (number == null) {
                leave(late(), now);
            } else {
                token = sent == Act.ACQUIRE ? number : token;
                granted(isConfirmed, now);
            }
        }

        private void granted(boolean isConfirmed, long now) {
            isUnconfirmed = !isConfirmed;
            if (refusal != null || isUnconfirmed) {
                then(Act.RELEASE, now);
            } else if (sent == Act.ACQUIRE && now - sentAt >= wish.lease / 3) {
                then(Act.RENEW, now);
            } else if (now - sentAt >= wish.lease) {
                then(Act.ACQUIRE, now);
            } else {
                isHeld = true;
                leaseFrom = sentAt;
                act = Act.OVER;
            }
        }

        /** It is not the holder any more. */
        private void released(long now) {
            token = 0;
            if (refusal != null) {
                act = Act.OVER;
            } else if (isUnconfirmed && wish.isTry) {
                leave(late(), now);
            } else {
                then(Act.ACQUIRE, isUnconfirmed ? now + Tries.PAUSE : now);
            }
        }

        /** The subscription stands. What was published before is unknown: ask again. */
        void listening(long now) {
            isBusy = false;
            isListening = true;
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
                boolean isOver = !failure.isPassing() && (sent == Act.CANCEL || sent == Act.RELEASE) || now >= leaveUntil;
                then(isOver ? Act.OVER : Act.CANCEL, Math.max(again, now + Tries.PAUSE));
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
            leaveUntil = Math.min(Timer.EVER, now + wish.lease);
            if (!isBusy) { // Else when the answer has come.
                then(Act.CANCEL, now);
            }
            return true;
        }
    }

    /** The lease of a lock that is held. */
    static final class Hold {
        private final boolean isRenewed;
        private long lease, from, due;

        Hold(long lease, long from, boolean isRenewed) {
            this.isRenewed = isRenewed;
            renewed(lease, from);
        }

        /** RENEW, PAUSE until {@link #end} or {@link #due}, or OVER: it is lost. */
        Act next(long now) {
            return now >= end() ? Act.OVER : now >= due ? Act.RENEW : Act.PAUSE;
        }

        void renewed(long newLease, long sentAt) {
            lease = newLease;
            from = Math.max(from, sentAt);
            due = isRenewed ? from + lease / 3 : Timer.EVER;
        }

        void failed(long now) {
            due = isRenewed ? now + Math.max(Tries.PAUSE, lease / 10) : Timer.EVER;
        }

        /** Whatever becomes of this renewal, the next one is due. */
        void sent(long now) {
            due = now + Math.max(Tries.PAUSE, lease / 3);
        }

        long lease() {
            return lease;
        }

        long due() {
            return Math.min(due, end());
        }

        long end() {
            return Math.min(Timer.EVER, from + lease);
        }
    }
}
