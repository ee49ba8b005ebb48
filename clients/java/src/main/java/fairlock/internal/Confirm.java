package fairlock.internal;

import fairlock.internal.Backend.Line;
import fairlock.internal.Lines.Kind;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Renewals at one server that count only if replicas have them, and acquisitions, which are renewed for that. RENEW,
 * ROLE and WAIT share a connection, so that one run of one server answers all three. Requests during one WAIT share the
 * next.
 */
final class Confirm {
    private static final long ALONE_FOR = TimeUnit.SECONDS.toNanos(1);

    /** How many replicas have to confirm (null: by the topology), and for how long they are asked; zero: not at all. */
    record Need(Integer replicas, Duration timeout) {}

    /** The lease that was set, and whether enough replicas have it. */
    record Outcome(Long lease, boolean isConfirmed) {}

    private record Job(Need need, boolean isAsking, Object[] words, CompletableFuture<Outcome> outcome) {}

    private final Lines lines;
    private final Address address;
    private final long commandNanos;
    private final List<Job> waiting = new ArrayList<>();
    private boolean isBusy;
    private volatile Long alone;

    Confirm(Lines lines, Address address, long commandNanos) {
        this.lines = lines;
        this.address = address;
        this.commandNanos = commandNanos;
    }

    /** Whether no replica has to confirm, as seen a moment ago. */
    boolean isNeedless(Need need) {
        Long seen = alone;
        boolean isAlone = seen != null && System.nanoTime() - seen < ALONE_FOR;
        return need.timeout.isZero() || (isAlone && least(need) == 0);
    }

    private int least(Need need) {
        return need.replicas == null ? lines.route().leastReplicas(address) : need.replicas;
    }

    CompletableFuture<Outcome> renew(Need need, boolean isAsking, Object... words) {
        Job job = new Job(need, isAsking, words, new CompletableFuture<>());
        synchronized (this) {
            waiting.add(job);
            if (isBusy) {
                return job.outcome;
            }
            isBusy = true;
        }
        next();
        return job.outcome;
    }

    /** All that have the same need as the first. */
    private synchronized List<Job> batch() {
        List<Job> batch = new ArrayList<>();
        for (Iterator<Job> each = waiting.iterator(); each.hasNext(); ) {
            Job job = each.next();
            if (batch.isEmpty() || batch.get(0).need.equals(job.need)) {
                batch.add(job);
                each.remove();
            }
        }
        isBusy = !batch.isEmpty();
        return batch;
    }

    private void next() {
        List<Job> batch = batch();
        if (batch.isEmpty()) {
            return;
        }
        CompletableFuture<Line> line;
        try {
            line = lines.line(Kind.CONFIRM, address);
        } catch (RuntimeException closed) {
            line = CompletableFuture.failedFuture(closed);
        }
        CompletableFuture<Line> used = line;
        used.thenCompose(each -> send(each, batch)).whenComplete((nothing, error) -> {
            if (error != null) {
                batch.forEach(job -> job.outcome.completeExceptionally(error));
                lines.distrust(Kind.CONFIRM, address, used);
            }
            next();
        });
    }

    private CompletableFuture<Void> send(Line line, List<Job> batch) {
        List<CompletableFuture<List<Object>>> replies = new ArrayList<>();
        for (Job job : batch) {
            replies.add(job.isAsking ? line.asking(job.words) : line.call(job.words));
        }
        boolean wasNative = line.isNative();
        CompletableFuture<Boolean> first = sent(line, replies).thenCompose(nothing -> confirmed(line, batch.get(0).need));
        // If the commands were denied, WAIT came before their scripts.
        CompletableFuture<Boolean> confirmed = first.thenCompose(isConfirmed -> line.isNative() == wasNative
                ? CompletableFuture.completedFuture(isConfirmed)
                : sent(line, replies).thenCompose(nothing -> confirmed(line, batch.get(0).need)));
        for (int index = 0; index < replies.size(); index++) {
            Job job = batch.get(index);
            replies.get(index).thenCombine(confirmed, (reply, isConfirmed) -> new Outcome((Long) reply.get(0), isConfirmed))
                    .whenComplete((outcome, error) -> {
                        if (error == null) {
                            job.outcome.complete(outcome);
                        } else {
                            job.outcome.completeExceptionally(error);
                        }
                    });
        }
        return confirmed.thenApply(any -> null);
    }

    /** A script is sent again if the server does not know it: WAIT comes after that. */
    private CompletableFuture<Void> sent(Line line, List<CompletableFuture<List<Object>>> replies) {
        if (line.isNative()) {
            return CompletableFuture.completedFuture(null);
        }
        CompletableFuture<?>[] all =
                replies.stream().map(each -> each.handle((reply, error) -> null)).toArray(CompletableFuture<?>[]::new);
        return Waits.within(CompletableFuture.allOf(all), commandNanos);
    }

    /**
     * Whether the replicas have the writes of this connection, and grants while it was blocked: WAIT covers nothing
     * else. ROLE tells how many to wait for.
     */
    CompletableFuture<Boolean> confirmed(Line line, Need need) {
        if (need.timeout.isZero()) {
            return CompletableFuture.completedFuture(true);
        }
        return Waits.within(line.call("ROLE"), commandNanos).thenCompose(role -> {
            if (!role.get(0).equals("master")) {
                return CompletableFuture.failedFuture(Failure.refusal("READONLY the server is no master, says its ROLE"));
            }
            int connected = ((List<?>) role.get(2)).size();
            int least = Math.max(Math.min(1, connected), least(need));
            alone = connected == 0 ? Long.valueOf(System.nanoTime()) : null;
            if (least == 0) {
                return CompletableFuture.completedFuture(true);
            }
            long longest = Options.nanos(need.timeout) + commandNanos;
            return Waits.within(line.call("WAIT", Math.max(connected, least), Options.ms(need.timeout)), longest)
                    .thenApply(count -> (Long) count.get(0) >= least);
        });
    }
}
