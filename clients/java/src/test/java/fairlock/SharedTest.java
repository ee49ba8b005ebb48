package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import org.junit.jupiter.api.Test;

/** Rows 50 and 51: shared and limited locks. */
class SharedTest extends Fixture {
    private final View view = Servers.ONE.view("a");
    private final Locks locks = locks(Servers.ONE, "a");

    @Test
    void r50_sharedHoldersHoldTogether() throws Exception {
        LockOptions shared = OPTIONS.shared(true);
        List<Held> readers =
                List.of(locks.acquire(name, shared), locks.acquire(name, shared), locks.acquire(name, shared));
        assertEquals(3, readers.stream().map(Held::token).distinct().count());
        Begun writer = begin(locks, name);
        view.waits(name, 1);
        Begun late = begin(locks, name, shared);
        view.waits(name, 2);
        for (Held reader : readers) {
            assertFalse(writer.isDone());
            reader.release();
        }
        Held held = writer.held();
        assertFalse(late.isDone());
        held.release();
        late.held().release();
        assertTrue(view.isFree(name));
    }

    @Test
    void r51_atMostSoManyHold() throws Exception {
        LockOptions two = OPTIONS.limit(2);
        Held first = locks.acquire(name, two);
        Held second = locks.acquire(name, two);
        assertThrows(NotInTimeException.class, () -> locks.acquire(name, two.wait(Duration.ZERO)));
        Begun third = begin(locks, name, two);
        view.waits(name, 1);
        second.release();
        third.held().release();
        first.release();
        assertTrue(view.isFree(name));
    }
}
