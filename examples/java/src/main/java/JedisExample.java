import static java.nio.charset.StandardCharsets.US_ASCII;

import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.ConnectionPoolConfig;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.JedisURIHelper;

/**
 * fairlock with Jedis: {@code java JedisExample [redis://127.0.0.1:6379]}
 *
 * <p>{@link FairLock} and {@link SessionLock} are to copy; the rest shows them at work, and fails if
 * anything is not as it says.
 *
 * <p>Timeouts. Jedis gives up a command after two seconds unless you say otherwise, but not one that is
 * marked {@code blocking()}: that waits for as long as {@code blockingSocketTimeoutMillis}, which is
 * forever unless you say otherwise.
 *
 * <p>Each thread that waits has a connection of the pool, and whoever releases needs one, too: let
 * {@code maxTotal}, which is 8 unless you say otherwise, be more than the threads that wait.
 */
public final class JedisExample {
    /** Not to be had within the wait. */
    static final class NotInTime extends RuntimeException {}

    /** The lease ended before the work did, or an operator broke the lock. */
    static final class LockLost extends RuntimeException {}

    /** A lock held from {@code acquire} to the end of a try-with-resources. */
    record FairLock(UnifiedJedis client, String name, String owner, long token) implements AutoCloseable {
        /** Waits at most so long. QUEUEFULL and other refusals are thrown as JedisDataException. */
        static FairLock acquire(UnifiedJedis client, String name, Duration wait, Duration lease) {
            // Nobody else has this owner's name, so no other thread can take its place or its lock.
            String owner = UUID.randomUUID().toString();
            long end = System.nanoTime() + wait.toNanos();
            while (true) {
                long left = Math.max(1, (end - System.nanoTime()) / 1_000_000);
                try {
                    Object token = client.executeCommand(
                            command("FAIRLOCK.ACQUIRE", name, owner, "WAIT", left, "LEASE", lease.toMillis())
                                    .blocking());
                    if (token == null) {
                        throw new NotInTime();
                    }
                    return new FairLock(client, name, owner, (Long) token);
                } catch (JedisDataException error) {
                    // After a failover the place in the queue is still there.
                    if (!error.getMessage().startsWith("UNBLOCKED")) {
                        throw error;
                    }
                }
            }
        }

        /** Releases it: the next one has it by the time this returns. */
        @Override
        public void close() {
            try {
                client.executeCommand(command("FAIRLOCK.RELEASE", name, owner));
            } catch (JedisDataException error) {
                throw error.getMessage().startsWith("NOTHELD") ? new LockLost() : error;
            }
        }
    }

    /**
     * A lock held for as long as a connection of its own is open. The server renews the lease, and frees
     * the lock as soon as the process is gone; the lease bounds it if the server is.
     */
    record SessionLock(Jedis connection, String name) implements AutoCloseable {
        static SessionLock acquire(URI url, String name, Duration wait, Duration lease) {
            Jedis connection = new Jedis(url);
            try {
                Object token = connection.sendBlockingCommand(named("FAIRLOCK.ACQUIRE"), name, "*",
                        "SESSION", "WAIT", Long.toString(wait.toMillis()),
                        "LEASE", Long.toString(lease.toMillis()));
                if (token == null) {
                    throw new NotInTime();
                }
                return new SessionLock(connection, name);
            } catch (RuntimeException error) {
                connection.close();
                throw error;
            }
        }

        /** Whoever works for long asks this now and then: false means that the lock is lost. */
        boolean isHeld() {
            try {
                connection.sendCommand(named("FAIRLOCK.RENEW"), name, "*");
                return true;
            } catch (JedisDataException | JedisConnectionException error) {
                return false;
            }
        }

        @Override
        public void close() {
            connection.close();
        }
    }

    /** A command of the module's. That it has a key tells a cluster client where to send it. */
    static CommandArguments command(String name, String key, Object... arguments) {
        return new CommandArguments(named(name)).key(key).addObjects(arguments);
    }

    static ProtocolCommand named(String name) {
        byte[] raw = name.getBytes(US_ASCII);
        return () -> raw;
    }

    /** A store that has seen a token refuses all that are smaller. */
    static final String CONDITIONAL_WRITE = """
            if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then
              return redis.error_reply('STALE token')
            end
            return redis.call('HSET', KEYS[1], 'token', ARGV[1], 'amount', ARGV[2])""";

    // -------------------------------------------------------------------------------- at work

    private static final String LOCK = "example:jedis";
    private static final String STOCK = "example:jedis:stock";
    private static final Duration WAIT = Duration.ofSeconds(30);
    private static final Duration LEASE = Duration.ofSeconds(10);

    private final URI url;
    private final RedisClient client;

    private JedisExample(URI url) {
        this.url = url;
        ConnectionPoolConfig pool = new ConnectionPoolConfig();
        pool.setMaxTotal(16);
        client = RedisClient.builder()
                .hostAndPort(JedisURIHelper.getHostAndPort(url))
                .clientConfig(DefaultJedisClientConfig.builder(url).build())
                .poolConfig(pool)
                .build();
    }

    public static void main(String[] arguments) throws Exception {
        String named = System.getenv().getOrDefault("FAIRLOCK_URL", "redis://127.0.0.1:6379");
        JedisExample example = new JedisExample(URI.create(arguments.length > 0 ? arguments[0] : named));
        example.client.del(STOCK);
        example.manyWorkersLoseNothing();
        example.whoDoesNotGetItInTimeGoesOn();
        example.aHolderPastItsLeaseCannotWrite();
        example.aWaitOutlivesTheTimeout();
        example.aSessionEndsWithItsConnection();
        example.client.close();
    }

    private FairLock acquire(Duration wait, Duration lease) {
        return FairLock.acquire(client, LOCK, wait, lease);
    }

    private long amount() {
        String amount = client.hget(STOCK, "amount");
        return amount == null ? 0 : Long.parseLong(amount);
    }

    private void write(long token, long amount) {
        client.eval(CONDITIONAL_WRITE, List.of(STOCK), List.of(Long.toString(token), Long.toString(amount)));
    }

    private void manyWorkersLoseNothing() throws InterruptedException {
        List<Thread> workers = new ArrayList<>();
        for (int worker = 0; worker < 4; worker++) {
            workers.add(new Thread(() -> {
                for (int round = 0; round < 5; round++) {
                    try (FairLock lock = acquire(WAIT, LEASE)) {
                        long before = amount();
                        pause(2); // Time enough for others to write, if they could.
                        write(lock.token(), before + 1);
                    }
                }
            }));
        }
        workers.forEach(Thread::start);
        for (Thread worker : workers) {
            worker.join();
        }
        expect(amount() == 20, "4 workers have added 5 each");
    }

    private void whoDoesNotGetItInTimeGoesOn() {
        try (FairLock first = acquire(WAIT, LEASE)) {
            try (FairLock second = acquire(Duration.ofMillis(50), LEASE)) {
                expect(false, "two hold the lock");
            } catch (NotInTime error) {
                System.out.println("not in time: somebody else has the lock");
            }
            List<?> queue = (List<?>) client.executeCommand(command("FAIRLOCK.QUEUE", LOCK));
            expect(queue.isEmpty(), "whoever gave up has left the queue");
        }
    }

    private void aHolderPastItsLeaseCannotWrite() {
        try (FairLock old = acquire(WAIT, Duration.ofMillis(50))) {
            // This holder sleeps. Meanwhile its lease ends, and the next one takes the lock.
            try (FairLock lock = acquire(WAIT, LEASE)) {
                expect(lock.token() > old.token(), "tokens grow");
                write(lock.token(), 7);
            }
            try {
                write(old.token(), 9);
                expect(false, "an old token has written");
            } catch (JedisDataException error) {
                expect(error.getMessage().startsWith("STALE"), "the store refuses the old token");
            }
        } catch (LockLost error) {
            System.out.println("and the release tells that the lock was lost");
            expect(amount() == 7, "the newer value stays");
            return;
        }
        expect(false, "nobody has noticed");
    }

    private void aWaitOutlivesTheTimeout() {
        // Somebody has it for three seconds; ordinary commands give up after two.
        client.executeCommand(command("FAIRLOCK.ACQUIRE", LOCK, "somebody", "LEASE", 3000));
        try {
            client.executeCommand(command("FAIRLOCK.ACQUIRE", LOCK, "hasty", "WAIT", 10000));
            expect(false, "this should have given up");
        } catch (JedisConnectionException error) {
            System.out.println("an ordinary command gives up");
        }
        try (FairLock lock = acquire(WAIT, LEASE)) {
            System.out.println("a blocking one waits");
        }
    }

    private void aSessionEndsWithItsConnection() {
        SessionLock session = SessionLock.acquire(url, LOCK, WAIT, Duration.ofMinutes(1));
        expect(session.isHeld(), "the session holds");
        long start = System.nanoTime();
        new Thread(() -> {
            pause(200);
            session.close(); // As when the process dies: nobody releases.
        }).start();
        try (FairLock lock = acquire(WAIT, LEASE)) {
            long waited = (System.nanoTime() - start) / 1_000_000;
            expect(waited >= 150, "the next one waits as long as the connection is open");
            expect(waited < 20_000, "then it has the lock at once, not when a minute's lease ends");
        }
    }

    private static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void expect(boolean isSo, String what) {
        if (!isSo) {
            System.err.println("not so: " + what);
            System.exit(1);
        }
        System.out.println(what);
    }
}
