package fairlock;

import static fairlock.View.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import fairlock.LockLostException.Cause;
import fairlock.testing.FakeLocks;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** Rows 48, 49 and 52. */
class FakeTest extends Fixture {
    private final FakeLocks fake = ends(new FakeLocks());

    private void waits(String lock, int count) {
        until(count + " wait", () -> fake.waiting(lock).size() == count);
    }

    @Test
    void r48_theFakeIsFair() throws Exception {
        Held first = fake.acquire("orders");
        assertThrows(NotInTimeException.class, () -> fake.acquire("orders", waiting(50)));
        assertEquals(Optional.empty(), fake.tryAcquire("orders"));
        Begun cancelled = begin(fake, "orders");
        waits("orders", 1);
        cancelled.thread.interrupt();
        assertInstanceOf(InterruptedException.class, cancelled.failure());
        assertEquals(List.of(), fake.waiting("orders"));
        List<Begun> waiting = new ArrayList<>();
        for (int count = 1; count <= 3; count++) {
            waiting.add(begin(fake, "orders"));
            waits("orders", count);
        }
        List<String> order = fake.waiting("orders");
        first.release();
        List<Long> tokens = new ArrayList<>(List.of(first.token()));
        for (int index = 0; index < 3; index++) {
            Held held = waiting.get(index).held();
            assertEquals(order.get(index), held.owner());
            tokens.add(held.token());
            held.release();
        }
        assertEquals(tokens.stream().sorted().distinct().toList(), tokens);
        assertEquals(List.of(), fake.holders("orders"));
    }

    @Test
    void r48_theFakeIsReentrant() throws Exception {
        LockOptions again = OPTIONS.reentrant(true);
        try (Held outer = fake.acquire("orders", again)) {
            fake.acquire("orders", again).release();
            assertSame(outer, fake.acquire("orders", again));
            outer.release();
            assertInstanceOf(NotInTimeException.class, begin(fake, "orders", again.wait(Duration.ZERO)).failure());
        }
        assertEquals(List.of(), fake.holders("orders"));
        FairLock lock = fake.get("orders");
        lock.lock();
        lock.lock();
        lock.unlock();
        assertEquals(1, fake.holders("orders").size());
        lock.unlock();
        assertEquals(List.of(), fake.holders("orders"));
        assertThrows(IllegalArgumentException.class, () -> fake.acquire("orders", leasing(0)));
    }

    @Test
    void r48_theFakeCallsHooks() throws Exception {
        List<String> told = new CopyOnWriteArrayList<>();
        Hooks hooks = new Hooks() {
            @Override
            public void onWait(LockEvent event) {
                told.add("wait");
            }

            @Override
            public void onAcquired(LockEvent event) {
                told.add("acquired");
            }

            @Override
            public void onLost(LockEvent event) {
                told.add(event.cause().name());
            }

            @Override
            public void onReleased(LockEvent event) {
                told.add("released");
            }
        };
        FakeLocks hooked = ends(new FakeLocks(OPTIONS, hooks));
        Begun waiting;
        try (Held held = hooked.acquire("orders")) {
            waiting = begin(hooked, "orders");
            until("it waits", () -> hooked.waiting("orders").size() == 1);
        }
        waiting.held();
        hooked.breakLock("orders");
        List<String> all = Stream.of("NOTHELD", "acquired", "acquired", "released", "wait").toList();
        until("all told", () -> told.stream().sorted().toList().equals(all));
    }

    @Test
    void r49_aFakeLockThatExpires() throws Exception {
        isLost(fake::expire, Cause.LEASE);
    }

    @Test
    void r49_aFakeLockThatIsBroken() throws Exception {
        isLost(fake::breakLock, Cause.NOTHELD);
    }

    private void isLost(Consumer<String> way, Cause cause) throws Exception {
        Held held = fake.acquire("orders");
        Begun waiting = begin(fake, "orders");
        waits("orders", 1);
        way.accept("orders");
        assertEquals(cause, lostBy(held));
        Held second = waiting.held();
        assertThrows(LockLostException.class, held::release);
        assertEquals(List.of(second.owner()), fake.holders("orders"));
        second.release();
    }

    @Test
    void r49_aLockIsLostThatItsHolderDoesNotKnowOfYet() throws Exception {
        Held first = fake.acquire("orders");
        Begun second = begin(fake, "orders");
        waits("orders", 1);
        fake.expire("orders");
        fake.breakLock("orders");
        assertEquals(Cause.LEASE, lostBy(first));
        assertEquals(Cause.NOTHELD, lostBy(second.held()));
        assertEquals(List.of(), fake.holders("orders"));
    }

    @Test
    void r52_theFakeKnowsSharedAndLimitedLocks() throws Exception {
        LockOptions shared = OPTIONS.shared(true);
        List<Held> readers = List.of(
                fake.acquire("orders", shared), fake.acquire("orders", shared), fake.acquire("orders", shared));
        Begun writer = begin(fake, "orders");
        waits("orders", 1);
        Begun late = begin(fake, "orders", shared);
        waits("orders", 2);
        for (Held reader : readers) {
            assertFalse(writer.isDone());
            reader.release();
        }
        Held held = writer.held();
        assertFalse(late.isDone());
        held.release();
        late.held().release();
        LockOptions two = OPTIONS.limit(2);
        Held first = fake.acquire("slots", two);
        Held second = fake.acquire("slots", two);
        assertTrue(fake.tryAcquire("slots", two).isEmpty());
        Begun third = begin(fake, "slots", two);
        waits("slots", 1);
        first.release();
        third.held().release();
        second.release();
    }
}
