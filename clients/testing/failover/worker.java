import static fairlock.LockOptions.options;

import fairlock.FairlockException;
import fairlock.Held;
import fairlock.LockLostException;
import fairlock.LockOptions;
import fairlock.Locks;
import fairlock.NotInTimeException;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Takes locks and tells of each hold, for the failover experiment: one line of JSON for each event. Ends with its input.
 *
 * <pre>scripts/clients/java run clients/testing/failover/worker.java</pre>
 */
final class Worker {
    public static void main(String[] none) throws Exception {
        LockOptions defaults = options()
                .wait(Duration.ofSeconds(2))
                .lease(Duration.ofMillis(Long.parseLong(System.getenv("FAILOVER_LEASE_MS"))));
        String replicas = System.getenv().getOrDefault("FAILOVER_MIN_REPLICAS", "");
        Locks locks = Locks.builder(RedisClient.create(), sentinels())
                .defaults(replicas.isEmpty() ? defaults : defaults.minReplicas(Integer.valueOf(replicas)))
                .build();
        for (String lock : System.getenv("FAILOVER_LOCKS").split(",")) {
            for (int count = Integer.parseInt(System.getenv("FAILOVER_WORKERS")); count > 0; count--) {
                new Thread(() -> work(locks, lock.split(":"))).start();
            }
        }
        while (System.in.read() >= 0) {
            // Nothing is said to it.
        }
        System.exit(0);
    }

    private static RedisURI sentinels() {
        RedisURI.Builder uri = RedisURI.builder().withSentinelMasterId(System.getenv("FAILOVER_MASTER"));
        for (String each : System.getenv("FAILOVER_SENTINELS").split(",")) {
            String[] parts = each.split(":");
            uri.withSentinel(parts[0], Integer.parseInt(parts[1]));
        }
        return uri.build();
    }

    private static void work(Locks locks, String[] lock) {
        String name = lock[0];
        int limit = lock.length > 1 ? Integer.parseInt(lock[1]) : 1;
        LockOptions options = limit > 1 ? options().limit(limit) : options();
        while (true) {
            try {
                hold(locks.acquire(name, options), limit);
                Thread.sleep(between("FAILOVER_IDLE_MS", "0-0"));
            } catch (NotInTimeException error) {
                // It asks again.
            } catch (FairlockException | InterruptedException error) {
                tell("error", name, "\"what\":\"" + error.toString().replaceAll("[\"\\\\\n]", " ") + "\"");
                pause();
            }
        }
    }

    private static void pause() {
        try {
            Thread.sleep(100);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void hold(Held held, int limit) throws InterruptedException {
        String token = "\"token\":" + held.token();
        tell("begin", held.name(), "\"limit\":" + limit + ",\"owner\":\"" + held.owner() + "\"," + token + ",\"at\":" + now());
        var lostAt = held.lost().thenApply(loss -> now());
        try {
            String at = lostAt.get(between("FAILOVER_HOLD_MS", "50-150"), TimeUnit.MILLISECONDS);
            tell("end", held.name(), token + ",\"at\":" + at + ",\"how\":\"lost:" + cause(held.lost().join()) + "\"");
            return;
        } catch (TimeoutException time) {
            tell("end", held.name(), token + ",\"at\":" + now() + ",\"how\":\"release\"");
        } catch (java.util.concurrent.ExecutionException error) {
            throw new IllegalStateException(error);
        }
        try {
            held.release();
        } catch (LockLostException error) {
            tell("late", held.name(), token + ",\"cause\":\"" + cause(error) + "\"");
        }
    }

    /** Milliseconds from the range in a variable. */
    private static int between(String variable, String usual) {
        String range = System.getenv().getOrDefault(variable, "");
        String[] ends = (range.isEmpty() ? usual : range).split("-");
        return ThreadLocalRandom.current().nextInt(Integer.parseInt(ends[0]), Integer.parseInt(ends[1]) + 1);
    }

    private static String cause(LockLostException loss) {
        return loss.cause().name().toLowerCase();
    }

    /** Seconds, by the machine's clock. */
    private static String now() {
        Instant now = Instant.now().truncatedTo(ChronoUnit.MICROS);
        return String.format("%d.%06d", now.getEpochSecond(), now.getNano() / 1000);
    }

    private static synchronized void tell(String event, String lock, String more) {
        System.out.println("{\"event\":\"" + event + "\",\"lock\":\"" + lock + "\"," + more + "}");
        System.out.flush();
    }
}
