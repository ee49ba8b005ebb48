package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisCommands;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.function.Executable;

/** What the tests share: the server that scripts/clients/java starts, and a Locks at it. The rows of all languages are in clients/conformance. */
abstract class Fixture {
    static final int PORT = Integer.parseInt(System.getenv("FAIRLOCK_PORT"));
    static final RedisURI URI = RedisURI.create("127.0.0.1", PORT);
    static final RedisClient CLIENT = RedisClient.create();
    static final RedisCommands<String, String> REDIS = CLIENT.connect(URI).sync();
    static final Locks LOCKS = Locks.of(CLIENT, URI);

    final String name = "lock:" + UUID.randomUUID();

    static void until(String what, Callable<Boolean> isSo) {
        long end = System.nanoTime() + 120_000_000_000L;
        try {
            while (!isSo.call()) {
                assertTrue(System.nanoTime() < end, "still not so: " + what);
                Thread.sleep(10);
            }
        } catch (Exception error) {
            throw new AssertionError(what, error);
        }
    }

    /** In a thread of its own: what it throws, or null. */
    static CompletableFuture<Throwable> begin(Executable work) {
        return CompletableFuture.supplyAsync(() -> {
            try {
                work.execute();
                return null;
            } catch (Throwable error) {
                return error;
            }
        }, thread -> new Thread(thread).start());
    }

    void waits(String lock, int callers) {
        until(callers + " wait", () -> REDIS.llen("redisson_lock_queue:{" + lock + "}") == callers);
    }

    boolean isFree() {
        return REDIS.exists(name) == 0;
    }

    /** Leaves the class in the folder. */
    static void compile(String className, String text, Path folder) throws IOException {
        Path source = Files.writeString(folder.resolve(className + ".java"), text);
        List<String> options = List.of("-cp", System.getProperty("java.class.path"), "-d", folder.toString(), source.toString());
        assertEquals(0, ToolProvider.getSystemJavaCompiler().run(null, null, null, options.toArray(String[]::new)));
    }
}
