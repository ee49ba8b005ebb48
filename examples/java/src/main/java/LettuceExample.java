import io.lettuce.core.ClientOptions;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisCommandTimeoutException;
import io.lettuce.core.RedisException;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.NestedMultiOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * fairlock with Lettuce: {@code java LettuceExample [redis://127.0.0.1:6379]}
 *
 * <p>{@link FairLocks} and {@link SessionLock} are to copy; the rest shows them at work, and fails if
 * anything is not as it says.
 *
 * <p>Lettuce sends the commands of all threads on one connection, where a command that blocks would hold
 * up all behind it. So {@link FairLocks} asks by ENQUEUE, which is answered at once, and is woken through
 * one subscription for all threads. A session lock is bound to a connection, so it has one of its own, and
 * there it may block.
 *
 * <p>Timeouts. Lettuce gives up a command after the connection's timeout, a minute unless you say
 * otherwise. ENQUEUE is answered before it. The connection of a session lock has a timeout longer than its
 * wait. Never block with a shorter one: Lettuce forgets the command and leaves the connection open, so that
 * the lock goes to nobody when its turn comes.
 */
public final class LettuceExample {
    /** Not to be had within the wait. */
    static final class NotInTime extends RuntimeException {}

    /** The lease ended before the work did, or an operator broke the lock. */
    static final class LockLost extends RuntimeException {}

    /** Any number of waiters on one connection, and one more for the wake-ups. */
    static final class FairLocks implements AutoCloseable {
        private final StatefulRedisConnection<String, String> connection;
        private final StatefulRedisPubSubConnection<String, String> subscription;
        private final Map<String, Semaphore> wakeUps = new ConcurrentHashMap<>();
        private final String id = UUID.randomUUID().toString();
        private final AtomicLong count = new AtomicLong();

        FairLocks(RedisClient client, StatefulRedisConnection<String, String> connection) {
            this.connection = connection;
            subscription = client.connectPubSub();
            subscription.addListener(new RedisPubSubAdapter<>() {
                @Override
                public void message(String pattern, String channel, String message) {
                    Semaphore wakeUp = wakeUps.get(channel.substring(channel.lastIndexOf(id)));
                    if (wakeUp != null) {
                        wakeUp.release();
                    }
                }
            });
            // One pattern for all threads, whatever lock they wait for. A cluster has no patterns: there,
            // SSUBSCRIBE to an owner's channel before it asks for the first time. Lettuce subscribes again
            // when it has lost the connection; what it missed by then, retry-after makes up for.
            subscription.sync().psubscribe("redisson_lock__channel:*:" + id + ":*");
        }

        /** Waits at most so long. QUEUEFULL and other refusals are thrown as RedisException. */
        FairLock acquire(String name, Duration wait, Duration lease) throws InterruptedException {
            // Nobody else has this owner's name, so no other thread can take its place or its lock.
            String owner = id + ":" + count.incrementAndGet();
            Semaphore wakeUp = new Semaphore(0);
            wakeUps.put(owner, wakeUp);
            long end = System.nanoTime() + wait.toNanos();
            try {
                while (true) {
                    wakeUp.drainPermits();
                    // ONCE: Lettuce sends a command again if the connection breaks before the reply.
                    List<Object> reply = call(connection, "FAIRLOCK.ACQUIRE", name, owner, "ENQUEUE",
                            "LEASE", Long.toString(lease.toMillis()), "ONCE");
                    if (reply.size() == 1) {
                        return new FairLock(connection, name, owner, (Long) reply.get(0));
                    }
                    long left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime());
                    if (left <= 0) {
                        throw new NotInTime();
                    }
                    long retryAfter = (Long) reply.get(1);
                    wakeUp.tryAcquire(Math.min(left, retryAfter), TimeUnit.MILLISECONDS);
                }
            } catch (RuntimeException | InterruptedException error) {
                withdraw(name, owner);
                throw error;
            } finally {
                wakeUps.remove(owner);
            }
        }

        /** It may be queued still or, if only the reply was lost, hold the lock. */
        private void withdraw(String name, String owner) {
            for (String command : List.of("FAIRLOCK.CANCEL", "FAIRLOCK.RELEASE")) {
                try {
                    call(connection, command, name, owner);
                } catch (RedisException error) {
                    // The lease, or its patience, ends it a little later.
                }
            }
        }

        @Override
        public void close() {
            subscription.close();
        }
    }

    /** A lock held until the end of a try-with-resources. */
    record FairLock(StatefulRedisConnection<String, String> connection, String name, String owner, long token)
            implements AutoCloseable {
        /** Releases it: the next one's turn has begun by the time this returns. */
        @Override
        public void close() {
            try {
                call(connection, "FAIRLOCK.RELEASE", name, owner);
            } catch (RedisCommandExecutionException error) {
                throw error.getMessage().startsWith("NOTHELD") ? new LockLost() : error;
            }
        }
    }

    /**
     * A lock held for as long as a connection of its own is open. The server renews the lease, and frees
     * the lock as soon as the process is gone; the lease bounds it if the server is.
     */
    record SessionLock(StatefulRedisConnection<String, String> connection, String name)
            implements AutoCloseable {
        /** The client must not connect again by itself: another connection would be another session. */
        static ClientOptions options() {
            return ClientOptions.builder().autoReconnect(false).build();
        }

        static SessionLock acquire(RedisClient client, String name, Duration wait, Duration lease) {
            StatefulRedisConnection<String, String> connection = client.connect();
            connection.setTimeout(wait.plusSeconds(5));
            try {
                List<Object> reply = call(connection, "FAIRLOCK.ACQUIRE", name, "*", "SESSION",
                        "WAIT", Long.toString(wait.toMillis()), "LEASE", Long.toString(lease.toMillis()));
                if (reply.get(0) == null) {
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
                call(connection, "FAIRLOCK.RENEW", name, "*");
                return true;
            } catch (RedisException error) {
                return false;
            }
        }

        @Override
        public void close() {
            connection.close();
        }
    }

    /** The reply; one that is no array comes as a list of one. */
    private static List<Object> call(
            StatefulRedisConnection<String, String> connection, String command, String... arguments) {
        ProtocolKeyword keyword = () -> command.getBytes(StandardCharsets.US_ASCII);
        CommandArgs<String, String> words = new CommandArgs<>(StringCodec.UTF8);
        for (String argument : arguments) {
            words.add(argument);
        }
        return connection.sync().dispatch(keyword, new NestedMultiOutput<>(StringCodec.UTF8), words);
    }

    /** A store that has seen a token refuses all that are smaller. */
    static final String CONDITIONAL_WRITE = """
            if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'token') or 0) then
              return redis.error_reply('STALE token')
            end
            return redis.call('HSET', KEYS[1], 'token', ARGV[1], 'amount', ARGV[2])""";

    // -------------------------------------------------------------------------------- at work

    private static final String LOCK = "example:lettuce";
    private static final String STOCK = "example:lettuce:stock";
    private static final Duration WAIT = Duration.ofSeconds(30);
    private static final Duration LEASE = Duration.ofSeconds(10);

    private final RedisClient client;
    private final RedisClient sessions;
    private final StatefulRedisConnection<String, String> connection;
    private final FairLocks locks;

    private LettuceExample(String url) {
        client = RedisClient.create(url);
        sessions = RedisClient.create(url);
        sessions.setOptions(SessionLock.options());
        connection = client.connect();
        locks = new FairLocks(client, connection);
    }

    public static void main(String[] arguments) throws Exception {
        String named = System.getenv().getOrDefault("FAIRLOCK_URL", "redis://127.0.0.1:6379");
        LettuceExample example = new LettuceExample(arguments.length > 0 ? arguments[0] : named);
        example.connection.sync().del(STOCK);
        example.manyWorkersLoseNothing();
        example.whoDoesNotGetItInTimeGoesOn();
        example.aHolderPastItsLeaseCannotWrite();
        example.aWaitOutlivesTheTimeout();
        example.aSessionEndsWithItsConnection();
        System.exit(0); // Without Lettuce's leisurely shutdown.
    }

    private long amount() {
        String amount = connection.sync().hget(STOCK, "amount");
        return amount == null ? 0 : Long.parseLong(amount);
    }

    private void write(long token, long amount) {
        connection.sync().eval(CONDITIONAL_WRITE, ScriptOutputType.INTEGER, new String[] {STOCK},
                Long.toString(token), Long.toString(amount));
    }

    private void manyWorkersLoseNothing() throws InterruptedException {
        List<Thread> workers = new ArrayList<>();
        for (int worker = 0; worker < 4; worker++) {
            workers.add(new Thread(() -> {
                for (int round = 0; round < 5; round++) {
                    // Nobody asks again before half of this lease is over unless woken, and by then it is
                    // too late.
                    try (FairLock lock = locks.acquire(LOCK, WAIT, Duration.ofMinutes(2))) {
                        long before = amount();
                        Thread.sleep(2); // Time enough for others to write, if they could.
                        write(lock.token(), before + 1);
                    } catch (InterruptedException error) {
                        return;
                    }
                }
            }));
        }
        workers.forEach(Thread::start);
        for (Thread worker : workers) {
            worker.join();
        }
        expect(amount() == 20, "4 workers, woken in turn, have added 5 each");
    }

    private void whoDoesNotGetItInTimeGoesOn() throws InterruptedException {
        try (FairLock first = locks.acquire(LOCK, WAIT, LEASE)) {
            try (FairLock second = locks.acquire(LOCK, Duration.ofMillis(50), LEASE)) {
                expect(false, "two hold the lock");
            } catch (NotInTime error) {
                System.out.println("not in time: somebody else has the lock");
            }
            List<Object> queue = call(connection, "FAIRLOCK.QUEUE", LOCK);
            expect(queue.isEmpty(), "whoever gave up has left the queue");
        }
    }

    private void aHolderPastItsLeaseCannotWrite() throws InterruptedException {
        try (FairLock old = locks.acquire(LOCK, WAIT, Duration.ofMillis(50))) {
            // This holder sleeps. Meanwhile its lease ends, and the next one takes the lock.
            try (FairLock lock = locks.acquire(LOCK, WAIT, LEASE)) {
                expect(lock.token() > old.token(), "tokens grow");
                write(lock.token(), 7);
            }
            try {
                write(old.token(), 9);
                expect(false, "an old token has written");
            } catch (RedisCommandExecutionException error) {
                expect(error.getMessage().startsWith("STALE"), "the store refuses the old token");
            }
        } catch (LockLost error) {
            System.out.println("and the release tells that the lock was lost");
            expect(amount() == 7, "the newer value stays");
            return;
        }
        expect(false, "nobody has noticed");
    }

    private void aWaitOutlivesTheTimeout() throws InterruptedException {
        // Somebody has it for three seconds; these connections give up after two.
        call(connection, "FAIRLOCK.ACQUIRE", LOCK, "somebody", "LEASE", "3000");
        try (StatefulRedisConnection<String, String> hasty = client.connect();
                FairLocks ordinary = new FairLocks(client, hasty)) {
            hasty.setTimeout(Duration.ofSeconds(2));
            try (FairLock lock = ordinary.acquire(LOCK, WAIT, LEASE)) {
                System.out.println("ENQUEUE waits");
            }
            call(connection, "FAIRLOCK.ACQUIRE", LOCK, "somebody", "LEASE", "3000");
            try {
                call(hasty, "FAIRLOCK.ACQUIRE", LOCK, "hasty", "WAIT", "10000");
                expect(false, "this should have given up");
            } catch (RedisCommandTimeoutException error) {
                System.out.println("a blocking call on an ordinary connection gives up");
            }
        }
        try (SessionLock session = SessionLock.acquire(sessions, LOCK, WAIT, LEASE)) {
            System.out.println("and one with a longer timeout waits");
        }
    }

    private void aSessionEndsWithItsConnection() throws InterruptedException {
        SessionLock session = SessionLock.acquire(sessions, LOCK, WAIT, Duration.ofMinutes(1));
        expect(session.isHeld(), "the session holds");
        long start = System.nanoTime();
        new Thread(() -> {
            LockSupport.parkNanos(200_000_000);
            session.close(); // As when the process dies: nobody releases.
        }).start();
        try (FairLock lock = locks.acquire(LOCK, WAIT, LEASE)) {
            long waited = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            expect(waited >= 150, "the next one waits as long as the connection is open");
            expect(waited < 20_000, "then it has the lock at once, not when a minute's lease ends");
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
