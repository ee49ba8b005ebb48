package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import fairlock.LockLostException.Cause;
import io.lettuce.core.RedisURI;
import java.io.IOException;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import redis.embedded.RedisServer;

/** Rows 48 and 49: the server that the README has for tests of programs. It has no module, and is of Redis 6.2. */
class EmbeddedTest extends Fixture {
    private static final int PORT = freePort();
    private static final RedisServer SERVER = started();

    private final View view = new View(PORT);
    private final Locks locks = ends(Locks.of(CLIENT, RedisURI.create("127.0.0.1", PORT)));

    private static RedisServer started() {
        try {
            RedisServer server = new RedisServer(PORT);
            server.start();
            return server;
        } catch (IOException error) {
            throw new AssertionError(error);
        }
    }

    @AfterAll
    static void stop() throws IOException {
        SERVER.stop();
    }

    static int freePort() {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        } catch (IOException error) {
            throw new AssertionError(error);
        }
    }

    @Test
    void r48_theEmbeddedServerIsFair() throws Exception {
        Held first = locks.acquire(name);
        assertThrows(NotInTimeException.class, () -> locks.acquire(name, waiting(50)));
        assertEquals(Optional.empty(), locks.tryAcquire(name));
        Begun cancelled = begin(locks, name);
        view.waitsAwake(name, 1);
        cancelled.thread.interrupt();
        assertInstanceOf(InterruptedException.class, cancelled.failure());
        assertEquals(List.of(), view.queue(name));
        List<Begun> waiting = new ArrayList<>();
        for (int count = 1; count <= 3; count++) {
            waiting.add(begin(locks, name));
            view.waitsAwake(name, count);
        }
        first.release();
        List<Long> tokens = new ArrayList<>(List.of(first.token()));
        for (Begun each : waiting) {
            Held held = each.held();
            tokens.add(held.token());
            held.release();
        }
        assertEquals(tokens.stream().sorted().distinct().toList(), tokens);
        assertEquals(Optional.empty(), Optional.ofNullable(locks.info(name).owner()));
    }

    @Test
    void r49_aLockThatIsBrokenThereIsLostAndTheNextOneHasIt() throws Exception {
        Held held = locks.acquire(name, leasing(9000));
        Begun waiting = begin(locks, name);
        view.waitsAwake(name, 1);
        view.run("DEL", name);
        assertEquals(Cause.NOTHELD, lostBy(held));
        assertThrows(LockLostException.class, held::release);
        waiting.held().release();
    }
}
