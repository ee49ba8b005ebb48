package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;

import fairlock.LockLostException.Cause;
import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Rows 20 to 23. */
class SessionsTest extends Fixture {
    private static final LockOptions SESSION = OPTIONS.session(true).lease(Duration.ofSeconds(60));
    private final Servers one = ends(new Servers("one"));
    private final View view = one.view("a");
    private final Locks locks = locks(one, "a");

    @Test
    void r20_theServerRenewsASession() throws Exception {
        try (Held held = locks.acquire(name, SESSION.lease(Duration.ofSeconds(3)))) {
            assertEquals(1L, view.info(name).get("session"));
            View.pause(7000);
            assertEquals(held.token(), view.info(name).get("token"));
            assertFalse(held.isLost());
        }
        assertEquals(null, view.owner(name));
    }

    @Test
    void r21_aSessionEndsWithItsConnection() throws Exception {
        Held held = locks.acquire(name, SESSION.syncTimeout(Duration.ZERO));
        String session = view.clients().stream()
                .filter(line -> line.contains(" cmd=fairlock.acquire"))
                .findFirst()
                .orElseThrow();
        Fixture.Begun waiting = begin(locks, name);
        view.waitsAwake(name, 1);
        long start = System.nanoTime();
        view.run("CLIENT", "KILL", "ID", View.id(session));
        assertEquals(Cause.CONNECTION, lostBy(held));
        Held second = waiting.held();
        assertAtOnce(start);
        second.release();
        assertThrows(LockLostException.class, held::release);
    }

    @Test
    void r22_aSessionThatIsBrokenIsLost() throws Exception {
        Held held = locks.acquire(name, SESSION.lease(Duration.ofSeconds(3)));
        view.run("FAIRLOCK.BREAK", name);
        assertEquals(Cause.NOTHELD, lostBy(held));
    }

    @Test
    void r23_aSessionWaitsAndIsReleasedAtOnce() throws Exception {
        Held first = locks.acquire(name);
        Begun cancelled = begin(locks, name, SESSION);
        view.waits(name, 1);
        cancelled.thread.interrupt();
        assertInstanceOf(InterruptedException.class, cancelled.failure());
        assertEquals(List.of(), view.queue(name));
        Begun waiting = begin(locks, name, SESSION);
        view.waits(name, 1);
        first.release();
        Held held = waiting.held();
        assertEquals(1L, view.info(name).get("session"));
        int before = view.clients().size();
        held.release();
        assertEquals(null, view.owner(name));
        View.until("its connection is closed", () -> view.clients().size() == before - 1);
    }
}
