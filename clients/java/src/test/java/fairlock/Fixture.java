package fairlock;

import static java.time.Duration.ofMillis;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.lettuce.core.RedisClient;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInstance;

/** What the tests share. Each test has an instance, a lock's name, and things that end with it. */
@TestInstance(TestInstance.Lifecycle.PER_METHOD)
abstract class Fixture {
    static final RedisClient CLIENT = RedisClient.create();
    static final LockOptions OPTIONS = LockOptions.options();
    /** Where the alternative is a minute. */
    static final Duration AT_ONCE = Duration.ofSeconds(5);
    static final LockOptions LONG = OPTIONS.lease(Duration.ofSeconds(120)).patience(Duration.ofSeconds(120));

    String name;
    private final Deque<AutoCloseable> ending = new ArrayDeque<>();

    @BeforeEach
    void nameIt(TestInfo test) {
        name = "lock:" + test.getTestMethod().orElseThrow().getName() + ":" + UUID.randomUUID().toString().substring(0, 8);
    }

    @AfterEach
    void endAll() throws Exception {
        for (AutoCloseable each : ending) {
            each.close();
        }
    }

    <T extends AutoCloseable> T ends(T what) {
        ending.push(what);
        return what;
    }

    Servers servers(String... arguments) {
        return ends(new Servers(arguments));
    }

    Locks locks(Servers servers, String at) {
        return ends(Locks.of(CLIENT, servers.uri(at)));
    }

    Locks locks(Servers servers, String at, LockOptions defaults) {
        return ends(Locks.builder(CLIENT, servers.uri(at)).defaults(defaults).build());
    }

    /** For tests that need the module. */
    static void needsModule(String why) {
        assumeTrue(View.IS_NATIVE, why);
    }

    /** The reply to the next such command does not come. Connections have to be there: they begin with a question. */
    static void lose(Servers servers, String command) throws Exception {
        servers.tell("lose", View.wordOf(command));
    }

    /** An acquisition in a thread of its own, which lives until the test ends or {@link #end}. */
    static final class Begun {
        final CompletableFuture<Held> result = new CompletableFuture<>();
        private final CompletableFuture<Void> mayEnd = new CompletableFuture<>();
        final Thread thread;

        Begun(Locks locks, String name, LockOptions options) {
            thread = new Thread(() -> {
                try {
                    result.complete(locks.acquire(name, options));
                } catch (Throwable error) {
                    result.completeExceptionally(error);
                }
                mayEnd.join(); // The lease is renewed as long as its thread lives.
            });
            thread.setDaemon(true);
            thread.start();
        }

        Held held() {
            try {
                return result.get(60, TimeUnit.SECONDS);
            } catch (InterruptedException | ExecutionException | TimeoutException error) {
                throw new AssertionError(error);
            }
        }

        Throwable failure() {
            try {
                throw new AssertionError("acquired: " + result.get(60, TimeUnit.SECONDS));
            } catch (ExecutionException error) {
                return error.getCause();
            } catch (InterruptedException | TimeoutException error) {
                throw new AssertionError(error);
            }
        }

        boolean isDone() {
            return result.isDone();
        }

        void end() throws InterruptedException {
            mayEnd.complete(null);
            thread.join();
        }
    }

    static Begun begin(Locks locks, String name, LockOptions options) {
        return new Begun(locks, name, options);
    }

    static Begun begin(Locks locks, String name) {
        return begin(locks, name, OPTIONS);
    }

    static void waitFor(CompletableFuture<?> future) {
        try {
            future.get(60, TimeUnit.SECONDS);
        } catch (InterruptedException | ExecutionException | TimeoutException error) {
            throw new AssertionError(error);
        }
    }

    static LockLostException.Cause lostBy(Held held) {
        waitFor(held.lost());
        return held.lost().join().cause();
    }

    static void assertAtOnce(long start) {
        assertTrue(System.nanoTime() - start < AT_ONCE.toNanos());
    }

    static LockOptions waiting(long milliseconds) {
        return OPTIONS.wait(ofMillis(milliseconds));
    }

    static LockOptions leasing(long milliseconds) {
        return OPTIONS.lease(ofMillis(milliseconds));
    }
}
