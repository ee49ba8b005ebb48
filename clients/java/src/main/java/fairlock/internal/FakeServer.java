package fairlock.internal;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/**
 * A server's locks in this process: the rules of FAIRLOCK.ACQUIRE and the others, for the fake. Strictly first come, first
 * served; leases do not end by themselves.
 */
public final class FakeServer implements Backend {
    private static final int UNLIMITED = Integer.MAX_VALUE;

    private static final class Holder {
        final String owner;
        final long token;
        final int limit;
        long holds = 1;

        Holder(String owner, long token, int limit) {
            this.owner = owner;
            this.token = token;
            this.limit = limit;
        }
    }

    private record Waiter(String owner, int limit, CompletableFuture<List<Object>> reply) {}

    private static final class Lock {
        final List<Holder> holders = new ArrayList<>();
        final List<Waiter> queue = new ArrayList<>();
    }

    private final Route route = Route.one(new Address("the fake", 0));
    private final Map<String, Lock> locks = new HashMap<>();
    private long tokens;

    private Lock lock(Object name) {
        return locks.computeIfAbsent(name.toString(), any -> new Lock());
    }

    private synchronized CompletableFuture<List<Object>> run(List<Object> words) {
        CompletableFuture<List<Object>> reply = new CompletableFuture<>();
        switch (words.get(0).toString()) {
            case "ROLE" -> reply.complete(List.of("master", 0L, List.of()));
            case "FAIRLOCK.INFO" -> reply.complete(info(lock(words.get(1))));
            case "FAIRLOCK.ACQUIRE" -> acquire(lock(words.get(1)), words, reply);
            case "FAIRLOCK.RELEASE" -> release(lock(words.get(1)), words, reply);
            case "FAIRLOCK.RENEW" -> renew(lock(words.get(1)), words, reply);
            case "FAIRLOCK.CANCEL" -> answer(reply, cancel(lock(words.get(1)), words.get(2)));
            default -> reply.completeExceptionally(Failure.refusal("ERR unknown command '" + words.get(0) + "'"));
        }
        return reply;
    }

    private static void answer(CompletableFuture<List<Object>> reply, Object value) {
        List<Object> list = new ArrayList<>();
        list.add(value);
        reply.complete(list);
    }

    private void acquire(Lock lock, List<Object> words, CompletableFuture<List<Object>> reply) {
        String owner = words.get(2).toString();
        int limit = limit(words);
        Holder mine = holder(lock, owner);
        if (mine != null) {
            mine.holds += words.contains("ONCE") ? 0 : 1;
            answer(reply, mine.token);
        } else if (lock.queue.isEmpty() && fits(limit, lock)) {
            answer(reply, grant(lock, owner, limit));
        } else if (words.contains("NOWAIT")) {
            answer(reply, null);
        } else {
            join(lock, new Waiter(owner, limit, reply));
            endInTime(lock, words, owner, reply);
        }
    }

    private void join(Lock lock, Waiter waiter) {
        for (int place = 0; place < lock.queue.size(); place++) {
            Waiter there = lock.queue.get(place);
            if (there.owner.equals(waiter.owner)) {
                lock.queue.set(place, waiter);
                there.reply.completeExceptionally(Failure.refusal("TAKENOVER the owner asks on another connection"));
                return;
            }
        }
        lock.queue.add(waiter);
    }

    private void endInTime(Lock lock, List<Object> words, String owner, CompletableFuture<List<Object>> reply) {
        int wait = words.indexOf("WAIT");
        if (wait > 0) {
            CompletableFuture.delayedExecutor((Long) words.get(wait + 1), TimeUnit.MILLISECONDS)
                    .execute(() -> leave(lock, owner, reply));
        }
    }

    private synchronized void leave(Lock lock, String owner, CompletableFuture<List<Object>> reply) {
        if (lock.queue.removeIf(waiter -> waiter.reply == reply)) {
            answer(reply, null);
            serve(lock);
        }
    }

    private void quit(Lock lock, CompletableFuture<List<Object>> reply) {
        if (lock.queue.removeIf(waiter -> waiter.reply == reply)) {
            serve(lock);
        }
    }

    private long grant(Lock lock, String owner, int limit) {
        lock.holders.add(new Holder(owner, ++tokens, limit));
        return tokens;
    }

    private void serve(Lock lock) {
        while (!lock.queue.isEmpty() && fits(lock.queue.get(0).limit, lock)) {
            Waiter waiter = lock.queue.remove(0);
            answer(waiter.reply, grant(lock, waiter.owner, waiter.limit));
        }
    }

    private void release(Lock lock, List<Object> words, CompletableFuture<List<Object>> reply) {
        Holder holder = holder(lock, words.get(2));
        boolean isOther = words.size() > 4 && holder != null && !words.get(4).equals(holder.token);
        if (holder == null || isOther) {
            reply.completeExceptionally(Failure.refusal("NOTHELD the owner does not hold the lock"));
            return;
        }
        if (--holder.holds == 0) {
            lock.holders.remove(holder);
            serve(lock);
        }
        answer(reply, holder.holds);
    }

    private void renew(Lock lock, List<Object> words, CompletableFuture<List<Object>> reply) {
        if (holder(lock, words.get(2)) == null) {
            reply.completeExceptionally(Failure.refusal("NOTHELD the owner does not hold the lock"));
        } else {
            answer(reply, words.get(4));
        }
    }

    private long cancel(Lock lock, Object owner) {
        for (Waiter waiter : lock.queue) {
            if (waiter.owner.equals(owner)) {
                leave(lock, waiter.owner, waiter.reply);
                return 1;
            }
        }
        return 0;
    }

    private static List<Object> info(Lock lock) {
        Holder first = lock.holders.isEmpty() ? new Holder(null, 0, 0) : lock.holders.get(0);
        boolean isFree = first.owner == null;
        long limit = lock.holders.stream().mapToLong(each -> each.limit).min().orElse(0);
        return Arrays.asList("owner", first.owner, "holds", isFree ? 0L : first.holds, "lease", isFree ? 0L : -1L,
                "token", isFree ? null : first.token, "session", 0L, "waiting", (long) lock.queue.size(),
                "holders", (long) lock.holders.size(), "limit", limit == UNLIMITED ? 0L : limit);
    }

    private static Holder holder(Lock lock, Object owner) {
        return lock.holders.stream().filter(each -> each.owner.equals(owner)).findFirst().orElse(null);
    }

    private static int limit(List<Object> words) {
        int shared = words.indexOf("SHARED");
        if (shared < 0) {
            return 1;
        }
        return words.get(shared + 1) instanceof Integer limit ? limit : UNLIMITED;
    }

    /** Every holder tolerates at most its limit of holders in all, itself included. */
    private static boolean fits(int limit, Lock lock) {
        int all = lock.holders.size() + 1;
        return all <= limit && lock.holders.stream().allMatch(holder -> all <= holder.limit);
    }

    // ------------------------------------------------------------------- what the fake is told

    /** Takes the lock from all that hold it, and serves the next ones; returns the tokens that it had. */
    public synchronized List<Long> free(String name) {
        List<Long> tokens = lock(name).holders.stream().map(each -> each.token).toList();
        lock(name).holders.clear();
        serve(lock(name));
        return tokens;
    }

    /** The owners that hold the lock. */
    public synchronized List<String> holders(String name) {
        return lock(name).holders.stream().map(each -> each.owner).toList();
    }

    /** The owners that wait for it, first in, first out. */
    public synchronized List<String> waiting(String name) {
        return lock(name).queue.stream().map(Waiter::owner).toList();
    }

    // ------------------------------------------------------------------------------ a backend

    private final class FakeLine implements Line {
        private final CompletableFuture<Void> end = new CompletableFuture<>();
        private final Set<CompletableFuture<List<Object>>> pending = ConcurrentHashMap.newKeySet();

        @Override
        public CompletableFuture<List<Object>> call(Object... words) {
            CompletableFuture<List<Object>> reply = run(List.of(words));
            pending.add(reply);
            reply.whenComplete((value, error) -> pending.remove(reply));
            if (end.isDone()) {
                close();
            }
            return reply;
        }

        @Override
        public void onClosed(Runnable work) {
            end.thenRun(work);
        }

        @Override
        public void close() {
            for (CompletableFuture<List<Object>> reply : pending) {
                synchronized (FakeServer.this) {
                    locks.values().forEach(lock -> quit(lock, reply));
                    reply.completeExceptionally(Failure.broken("closed", null));
                }
            }
            end.complete(null);
        }
    }

    @Override
    public CompletableFuture<Line> open(Address address) {
        return CompletableFuture.completedFuture(new FakeLine());
    }

    @Override
    public CompletableFuture<Ears> listen(Address address) {
        throw new UnsupportedOperationException("waiting is blocking here");
    }

    @Override
    public Route route() {
        return route;
    }

    @Override
    public boolean hasLeases() {
        return false;
    }

    @Override
    public boolean isBlocking() {
        return true;
    }

    @Override
    public void close() {}
}
