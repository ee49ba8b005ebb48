package fairlock;

import static fairlock.View.until;
import static java.time.Duration.ofMillis;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import fairlock.LockLostException.Cause;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.net.InetAddress;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Rows 01 to 19, 24 to 30, 37 to 40, 42 to 46: one server. */
class HoldingTest extends Fixture {
    private static final class BodyException extends RuntimeException {
        private static final long serialVersionUID = 1;
    }

    private final Servers one = Servers.ONE;
    private final View view = one.view("a");
    private final Locks locks = locks(one, "a");

    @Test
    void r01_aFreeLockIsAcquiredAndReleased() throws Exception {
        Held held = locks.acquire(name);
        assertTrue(held.token() > 0);
        assertEquals(held.token(), view.info(name).get("token"));
        held.release();
        assertTrue(view.isFree(name));
        Held second = locks.acquire(name);
        assertTrue(second.token() > held.token());
        second.release();
    }

    @Test
    void r02_leavingTheBlockReleasesAlsoWhenItFails() throws Exception {
        try (Held held = locks.acquire(name)) {
            assertEquals(held.owner(), view.owner(name));
        }
        assertTrue(view.isFree(name));
        BodyException error = new BodyException();
        BodyException thrown = assertThrows(BodyException.class, () -> {
            try (Held held = locks.acquire(name)) {
                throw error;
            }
        });
        assertSame(error, thrown);
        assertEquals(0, thrown.getSuppressed().length);
        assertTrue(view.isFree(name));
    }

    @Test
    void r03_theOwnerNamesTheMachineAndIsNewEachTime() throws Exception {
        try (Held held = locks.acquire(name)) {
            String[] parts = ((String) view.owner(name)).split(":");
            assertEquals(InetAddress.getLocalHost().getHostName().replaceAll("[^A-Za-z0-9._-]", "-"), parts[0]);
            assertEquals(ProcessHandle.current().pid(), Long.parseLong(parts[1]));
            assertEquals(parts[2], UUID.fromString(parts[2]).toString());
            assertThrows(NotInTimeException.class, () -> locks.acquire(name, waiting(50)));
            assertEquals(held.owner(), view.owner(name));
        }
        try (Held held = locks.acquire(name, OPTIONS.owner("the nightly job"))) {
            assertEquals("the nightly job", view.owner(name));
        }
    }

    @Test
    void r04_noTimeToWait() throws Exception {
        try (Held held = locks.acquire(name)) {
            assertThrows(NotInTimeException.class, () -> locks.acquire(name, OPTIONS.wait(Duration.ZERO)));
            assertEquals(Optional.empty(), locks.tryAcquire(name));
            assertEquals(List.of(), view.queue(name));
        }
        try (Held held = locks.tryAcquire(name).orElseThrow()) {
            assertTrue(held.token() > 0);
        }
    }

    @Test
    void r05_theWaitRunsOut() throws Exception {
        try (Held held = locks.acquire(name)) {
            long start = System.nanoTime();
            assertThrows(NotInTimeException.class, () -> locks.acquire(name, waiting(300)));
            assertTrue(System.nanoTime() - start >= ofMillis(300).toNanos());
            assertEquals(List.of(), view.queue(name));
        }
    }

    @Test
    void r06_firstComeFirstServed() throws Exception {
        inOrder(3, OPTIONS);
    }

    @ParameterizedTest
    @ValueSource(ints = {10, 100})
    void r54_theOrderOfTheCalls(int count) throws Exception {
        inOrder(count, LONG);
    }

    /** These wait blocked, each on a connection that opens slowly. */
    @Test
    void r54_alsoOfOwnersThatWereGiven() throws Exception {
        inOrder(10, LONG.owner("caller "));
    }

    /** Threads, each once the one before it is in the queue. */
    private void inOrder(int count, LockOptions options) throws Exception {
        String owner = options.get("owner", null);
        Held first = locks.acquire(name, LONG);
        List<Begun> waiting = new ArrayList<>();
        for (int number = 1; number <= count; number++) {
            waiting.add(begin(locks, name, options.owner(owner == null ? null : owner + number)));
            view.waits(name, number);
        }
        first.release();
        List<Long> tokens = new ArrayList<>();
        for (Begun each : waiting) {
            Held held = each.held();
            tokens.add(held.token());
            held.release();
        }
        assertEquals(tokens.stream().sorted().distinct().toList(), tokens);
    }

    @Test
    void r07_theNextOneHasItAtOnce() throws Exception {
        Held first = locks.acquire(name, LONG);
        Begun waiting = begin(locks, name, LONG);
        view.waitsAwake(name, 1);
        long start = System.nanoTime();
        first.release();
        Held second = waiting.held();
        assertAtOnce(start);
        second.release();
    }

    @Test
    void r07_alsoIfTheNameHasBraces() throws Exception {
        String braces = "a{" + name + "}";
        Held first = locks.acquire(braces, LONG);
        Begun waiting = begin(locks, braces, LONG);
        view.waits(braces, 1);
        String channel = "redisson_lock__channel:" + braces + ":" + view.queue(braces).get(0);
        until("it listens", () -> view.run("PUBSUB", "CHANNELS", "*" + name + "*").contains(channel));
        long start = System.nanoTime();
        first.release();
        Held second = waiting.held();
        assertAtOnce(start);
        second.release();
    }

    @ParameterizedTest
    @ValueSource(strings = {"", "PT60S"})
    void r08_aWaitOutlivesTheClientsReadTimeout(String wait) throws Exception {
        RedisURI hasty = one.uri("a");
        hasty.setTimeout(ofMillis(300));
        Locks hastily = ends(Locks.of(CLIENT, hasty));
        Held held = hastily.acquire(name);
        LockOptions options = OPTIONS.wait(wait.isEmpty() ? null : Duration.parse(wait));
        Begun waiting = begin(hastily, name, options);
        Begun blocked = begin(hastily, name, options.owner("blocked"));
        view.waits(name, 2);
        View.pause(1000);
        assertFalse(waiting.isDone() || blocked.isDone());
        held.release();
        // Which of the two came first is not known.
        until("one has it", () -> waiting.isDone() || blocked.isDone());
        (waiting.isDone() ? waiting : blocked).held().release();
        until("both had it", () -> waiting.isDone() && blocked.isDone());
        (waiting.held().owner().equals(view.owner(name)) ? waiting : blocked).held().release();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void r09_cancellingLeavesTheQueue(boolean isBlocked) throws Exception {
        try (Held held = locks.acquire(name)) {
            Begun waiting = begin(locks, name, OPTIONS.owner(isBlocked ? "me" : null));
            waits(view, isBlocked);
            waiting.thread.interrupt();
            assertInstanceOf(InterruptedException.class, waiting.failure());
            assertEquals(List.of(), view.queue(name));
        }
        assertTrue(view.isFree(name));
    }

    /** A session waits blocked, and is granted the lock while it waits. */
    @Test
    void r10_aGrantOnItsWayToOneThatWasCancelledIsGivenBack() throws Exception {
        needsModule("scripts grant a lock in the reply to an ask only");
        Servers own = servers("one");
        View look = own.view("a");
        Locks slow = ends(Locks.builder(CLIENT, own.uri("proxy")).defaults(LONG).commandTimeout(ofMillis(500)).build());
        Held first = slow.acquire(name);
        Begun waiting = begin(slow, name, OPTIONS.session(true));
        look.waits(name, 1);
        own.tell("freeze");
        look.run("FAIRLOCK.RELEASE", name, first.owner());
        until("granted", () -> !look.isFree(name) && !first.owner().equals(look.owner(name)));
        waiting.thread.interrupt();
        assertInstanceOf(InterruptedException.class, waiting.failure());
        own.tell("thaw");
        until("it is free", () -> look.isFree(name), AT_ONCE.toSeconds());
    }

    /** The others are granted it in the reply to an ask. */
    @Test
    void r10_theSameInTheReplyToAnAsk() throws Exception {
        Servers own = servers("one");
        View look = own.view("a");
        Locks slow = ends(Locks.builder(CLIENT, own.uri("proxy")).defaults(LONG).commandTimeout(ofMillis(500)).build());
        slow.acquire("another").release(); // The connections are there.
        own.tell("freeze");
        Begun waiting = begin(slow, name);
        until("granted", () -> !look.isFree(name));
        waiting.thread.interrupt();
        assertInstanceOf(InterruptedException.class, waiting.failure());
        own.tell("thaw");
        until("it is free", () -> look.isFree(name), AT_ONCE.toSeconds());
    }

    @Test
    void r11_theLeaseIsRenewed() throws Exception {
        try (Held held = locks.acquire(name, leasing(9000))) {
            View.pause(19_000);
            assertEquals(held.token(), view.info(name).get("token"));
            assertFalse(held.isLost());
        }
    }

    @Test
    void r12_withoutRenewalTheLeaseEnds() throws Exception {
        long start = System.nanoTime();
        Held held = locks.acquire(name, leasing(400).renew(false));
        assertEquals(Cause.LEASE, lostBy(held));
        assertTrue(System.nanoTime() - start >= ofMillis(300).toNanos());
        until("it is free", () -> view.isFree(name));
    }

    @Test
    void r13_renewSetsTheLease() throws Exception {
        try (Held held = locks.acquire(name)) {
            assertEquals(ofSeconds(90), held.renew(ofSeconds(90)));
            long lease = (Long) view.info(name).get("lease");
            assertTrue(80_000 < lease && lease <= 90_000);
        }
        try (Held held = locks.acquire(name, OPTIONS.renew(false))) {
            assertEquals(ofSeconds(30), held.renew());
            long lease = (Long) view.info(name).get("lease");
            assertTrue(20_000 < lease && lease <= 30_000);
        }
    }

    @Test
    void r14_nothingIsLeftAfterTheRelease() throws Exception {
        Servers own = servers("one");
        View look = own.view("a");
        // In a process of its own: other tests have threads of the package's.
        Process process = Program.start(Leftovers.class, own.ports.get("a").toString());
        until("renewed", () -> look.calls("renew") > 1);
        until("released", () -> look.calls("release") == 2);
        long renewals = look.calls("renew");
        assertEquals("no threads left", Program.output(process).strip());
        assertEquals(renewals, look.calls("renew"));
    }

    static final class Leftovers {
        public static void main(String[] arguments) throws Exception {
            RedisURI uri = RedisURI.create("127.0.0.1", Integer.parseInt(arguments[0]));
            Locks locks = Locks.of(RedisClient.create(), uri);
            locks.acquire("first").release(); // The connections are there.
            Held held = locks.acquire("left", leasing(9000));
            View.pause(7000);
            held.release();
            View.pause(6300); // Two more would have been due.
            until("its threads have ended", () -> Thread.getAllStackTraces().keySet().stream()
                    .noneMatch(thread -> thread.getName().startsWith("fairlock")));
            System.out.println("no threads left");
            System.exit(0);
        }
    }

    @Test
    void r15_renewalDoesNotOutliveTheHolder() throws Exception {
        Begun kept = begin(locks, name, leasing(400));
        Held held = kept.held();
        kept.end();
        until("its thread has ended", () -> view.isFree(name));
        assertNotNull(held);
        locks.acquire(name, leasing(400));
        until("it was collected", () -> {
            System.gc();
            return view.isFree(name);
        });
    }

    @Test
    void r15_theThreadThatRenewsIsTheHolder() throws Exception {
        Begun given = begin(locks, name, leasing(9000));
        Held held = given.held();
        held.renew();
        given.end();
        View.pause(11_000);
        assertEquals(held.token(), view.info(name).get("token"));
        held.release();
    }

    @Test
    void r16_aLockThatIsBrokenIsLost() throws Exception {
        Held held = locks.acquire(name, leasing(3000));
        view.run("FAIRLOCK.BREAK", name);
        assertEquals(Cause.NOTHELD, lostBy(held));
        LockLostException lost = assertThrows(LockLostException.class, held::release);
        assertEquals(Cause.NOTHELD, lost.cause());
        assertEquals("NOTHELD", lost.code());
    }

    @Test
    void r17_theLockOfAnotherIsLeftAlone() throws Exception {
        Held held = locks.acquire(name, leasing(3000));
        view.run("DEL", name);
        Object token = view.run("FAIRLOCK.ACQUIRE", name, "another", "NOWAIT").get(0);
        assertEquals(Cause.NOTHELD, lostBy(held));
        assertThrows(LockLostException.class, held::release);
        assertEquals(token, view.info(name).get("token"));
    }

    @Test
    void r18_aServerThatIsSilent() throws Exception {
        Servers own = servers("one");
        Held held = locks(own, "proxy").acquire(name, leasing(1500));
        long start = System.nanoTime();
        own.tell("freeze");
        assertEquals(Cause.LEASE, lostBy(held));
        // The last renewal may have been answered just before.
        assertTrue(System.nanoTime() - start < AT_ONCE.plusMillis(1500).toNanos());
        own.tell("thaw");
    }

    @ParameterizedTest
    @CsvSource({"true, true", "true, false", "false, true", "false, false"})
    void aGrantThatArrivesWhenItsLeaseIsOverIsNone(boolean isBlocked, boolean renew) throws Exception {
        Servers own = servers("one");
        View look = own.view("a");
        Locks slow = ends(Locks.builder(CLIENT, own.uri("proxy")).commandTimeout(ofSeconds(30)).build());
        slow.acquire("another").release(); // The connections are there.
        LockOptions options = leasing(1000).renew(renew).owner(isBlocked ? "me" : null).syncTimeout(Duration.ZERO);
        final Begun waiting;
        if (isBlocked) {
            look.run("FAIRLOCK.ACQUIRE", name, "first", "LEASE", 120_000);
            waiting = begin(slow, name, options);
            look.waitsBlocked(name);
            own.tell("freeze");
            look.run("FAIRLOCK.RELEASE", name, "first");
        } else {
            own.tell("freeze");
            long before = look.calls("acquire");
            waiting = begin(slow, name, options);
            until("granted", () -> look.calls("acquire") > before);
        }
        // Another gets the lock after that lease.
        long token = (Long) look.run("FAIRLOCK.ACQUIRE", name, "second", "LEASE", 120_000).get(0);
        own.tell("thaw");
        until("it waits again, or takes itself for the holder", () -> waiting.isDone() || !look.queue(name).isEmpty());
        assertFalse(waiting.isDone());
        look.run("FAIRLOCK.RELEASE", name, "second");
        Held held = waiting.held();
        assertTrue(held.token() > token && !held.isLost());
        held.release();
    }

    @Test
    void r19_aLostLockIsNotRenewed() throws Exception {
        Held held = locks.acquire(name, leasing(200).renew(false));
        assertEquals(Cause.LEASE, lostBy(held));
        assertEquals(Cause.LEASE, assertThrows(LockLostException.class, held::renew).cause());
    }

    @Test
    void r24_waitersDoNotKeepTheHolderFromReleasing() throws Exception {
        Servers own = servers("one", "--maxclients", "60");
        View look = own.view("a");
        Locks many = locks(own, "a", LONG);
        Held held = many.acquire(name);
        List<Begun> waiting = new ArrayList<>();
        for (int count = 0; count < 10; count++) {
            waiting.add(begin(many, name));
        }
        look.waits(name, 10);
        // Lettuce has no pool that could be too small: all wait on the shared connections.
        assertTrue(look.clients().size() <= 5, look.clients().toString());
        held.release();
        while (!waiting.isEmpty()) {
            until("the next one has it", () -> waiting.stream().anyMatch(Begun::isDone));
            Begun next = waiting.stream().filter(Begun::isDone).findFirst().orElseThrow();
            waiting.remove(next);
            next.held().release();
        }
        assertTrue(look.isFree(name));
    }

    @Test
    void r25_aFailingReleaseDoesNotHideTheBodysError() {
        BodyException error = new BodyException();
        BodyException thrown = assertThrows(BodyException.class, () -> {
            try (Held held = locks.acquire(name)) {
                view.run("FAIRLOCK.BREAK", name);
                throw error;
            }
        });
        assertSame(error, thrown);
        assertInstanceOf(LockLostException.class, thrown.getSuppressed()[0]);
    }

    @Test
    void r26_aLostLockIsToldAtTheEnd() throws Exception {
        assertThrows(LockLostException.class, () -> {
            try (Held held = locks.acquire(name)) {
                view.run("FAIRLOCK.BREAK", name);
            }
        });
        Held held = locks.acquire(name);
        held.release();
        Held other = locks.acquire(name);
        held.release();
        assertEquals(other.owner(), view.owner(name));
        other.release();
    }

    @Test
    void r27_theReplyToReleaseIsLost() throws Exception {
        Servers own = servers("one");
        Locks cut = locks(own, "proxy");
        cut.acquire(name).release();
        Held held = cut.acquire(name);
        lose(own, "FAIRLOCK.RELEASE");
        held.release();
        assertEquals("1", own.tell("lost"));
        assertTrue(own.view("a").isFree(name));
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void r28_theReplyToAcquireIsLost(boolean isTaken) throws Exception {
        Servers own = servers("one");
        View look = own.view("a");
        Locks cut = locks(own, "proxy");
        cut.acquire(name).release();
        Begun waiting;
        if (isTaken) {
            Held first = cut.acquire(name);
            waiting = begin(cut, name);
            look.waitsAwake(name, 1);
            own.tell("cut");
            look.run("FAIRLOCK.RELEASE", name, first.owner());
            own.tell("mend");
        } else {
            lose(own, "FAIRLOCK.ACQUIRE");
            waiting = begin(cut, name);
        }
        Held held = waiting.held();
        if (!isTaken) {
            assertEquals("1", own.tell("lost"));
        }
        assertEquals(1L, look.info(name).get("holds"));
        assertEquals(held.owner(), look.owner(name));
        assertEquals(held.token(), look.info(name).get("token"));
        held.release();
        assertTrue(look.isFree(name));
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void r28_theReplyIsLostAndTheNextAskRefused(boolean isBlocking) throws Exception {
        if (isBlocking) {
            needsModule("scripts grant a lock in the reply to an ask only");
        }
        Servers own = servers("one");
        View look = own.view("a");
        Locks cut = locks(own, "proxy");
        LockOptions options = LONG.owner(isBlocking ? "me" : null).syncTimeout(Duration.ZERO);
        cut.acquire(name, options).release();
        own.tell("freeze");
        Begun waiting = isBlocking ? null : begin(cut, name, options);
        if (isBlocking) {
            // A connection of its own could not be made now.
            own.tell("thaw");
            look.run("FAIRLOCK.ACQUIRE", name, "another", "NOWAIT");
            waiting = begin(cut, name, options);
            look.waitsBlocked(name);
            own.tell("freeze");
            look.run("FAIRLOCK.RELEASE", name, "another");
        }
        until("the server has granted it", () -> look.owner(name) != null && !look.owner(name).equals("another"));
        look.run("CONFIG", "SET", "maxmemory", "1");
        for (String command : List.of("cut", "thaw", "mend")) {
            own.tell(command);
        }
        assertEquals("OOM", assertInstanceOf(RefusedException.class, waiting.failure()).code());
        until("it is free", () -> look.isFree(name));
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void r29_connectionsAreCutWhileACallerWaits(boolean isBlocked) throws Exception {
        Servers own = servers("one");
        View look = own.view("a");
        Locks cut = locks(own, "proxy");
        look.run("FAIRLOCK.ACQUIRE", name, "another", "NOWAIT");
        Begun waiting = begin(cut, name, LONG.owner(isBlocked ? "me" : null));
        waits(look, isBlocked);
        own.tell("cut");
        if (isBlocked && View.IS_NATIVE) {
            look.waits(name, 0);
        }
        own.tell("mend");
        waits(look, isBlocked);
        long start = System.nanoTime();
        look.run("FAIRLOCK.RELEASE", name, "another");
        waiting.held().release();
        assertAtOnce(start);
    }

    private void waits(View look, boolean isBlocked) {
        if (isBlocked) {
            look.waitsBlocked(name);
        } else {
            look.waitsAwake(name, 1);
        }
    }

    /** Those that wait blocked. */
    @Test
    void r30_unblockedItAsksAgain() throws Exception {
        needsModule("with scripts none is blocked");
        Servers own = servers("one");
        View look = own.view("a");
        look.run("FAIRLOCK.ACQUIRE", name, "another", "NOWAIT");
        Begun waiting = begin(locks(own, "a"), name, OPTIONS.owner("me"));
        look.waitsBlocked(name);
        String blocked = look.clients().stream().filter(line -> line.contains(" flags=b ")).findFirst().orElseThrow();
        long asked = look.calls("acquire");
        look.run("CLIENT", "UNBLOCK", View.id(blocked), "ERROR");
        until("it asks again", () -> look.calls("acquire") > asked && look.queue(name).equals(List.of("me")));
        look.run("FAIRLOCK.RELEASE", name, "another");
        Held held = waiting.held();
        assertEquals("me", held.owner());
        held.release();
    }

    /** Those that wait by ENQUEUE. */
    @Test
    void r30_aServerThatIsKilledAndStartedAgain() throws Exception {
        Servers own = servers("one");
        View look = own.view("a");
        look.run("FAIRLOCK.ACQUIRE", name, "another", "NOWAIT", "LEASE", 120_000);
        Begun waiting = begin(locks(own, "a"), name);
        look.waitsAwake(name, 1);
        List<String> queue = look.queue(name);
        own.tell("kill", "a");
        own.tell("start", "a");
        View again = own.view("a");
        again.waitsAwake(name, 1);
        assertEquals(queue, again.queue(name));
        again.run("FAIRLOCK.RELEASE", name, "another");
        Held held = waiting.held();
        assertEquals(queue, List.of(held.owner()));
        held.release();
    }

    @Test
    void r37_theSameCallerHoldsItAgain() throws Exception {
        LockOptions again = OPTIONS.reentrant(true);
        try (Held outer = locks.acquire(name, again)) {
            try (Held inner = locks.acquire(name, again)) {
                assertSame(outer, inner);
                assertEquals(outer.token(), inner.token());
            }
            assertEquals(outer.owner(), view.owner(name));
            Begun other = begin(locks, name, again.wait(Duration.ZERO));
            assertInstanceOf(NotInTimeException.class, other.failure());
        }
        assertTrue(view.isFree(name));
    }

    @Test
    void r38_notReentrantUnlessAsked() throws Exception {
        try (Held held = locks.acquire(name)) {
            assertThrows(NotInTimeException.class, () -> locks.acquire(name, waiting(50)));
        }
        assertTrue(view.isFree(name));
    }

    record Told(String which, LockEvent event) {}

    @Test
    void r39_hooks() throws Exception {
        List<Told> told = new CopyOnWriteArrayList<>();
        Hooks hooks = new Hooks() {
            @Override
            public void onWait(LockEvent event) {
                told.add(new Told("wait", event));
            }

            @Override
            public void onAcquired(LockEvent event) {
                told.add(new Told("acquired", event));
            }

            @Override
            public void onLost(LockEvent event) {
                told.add(new Told("lost", event));
            }

            @Override
            public void onReleased(LockEvent event) {
                told.add(new Told("released", event));
            }
        };
        Locks hooked = ends(Locks.builder(CLIENT, one.uri("a")).hooks(hooks).build());
        Held first = hooked.acquire(name);
        Begun waiting = begin(hooked, name);
        view.waits(name, 1);
        first.release();
        Held second = waiting.held();
        until("all told", () -> told.size() == 4);
        Supplier<List<String>> all = () -> told.stream().map(Told::which).sorted().toList();
        assertEquals(List.of("acquired", "acquired", "released", "wait"), all.get());
        List<Told> seconds = told.stream().filter(each -> each.event.owner().equals(second.owner())).toList();
        assertEquals(List.of("wait", "acquired"), seconds.stream().map(Told::which).toList());
        assertTrue(told.stream().allMatch(each -> each.event.name().equals(name)));
        LockEvent acquired = seconds.get(1).event;
        assertEquals(second.token(), acquired.token());
        assertTrue(acquired.waited().toNanos() > 0);
        LockEvent released = told.stream().filter(each -> each.which.equals("released")).findFirst().orElseThrow().event;
        assertEquals(List.of(first.owner(), first.token()), List.of(released.owner(), released.token()));
        assertTrue(released.held().toNanos() > 0);
        told.clear();
        view.run("FAIRLOCK.BREAK", name);
        assertThrows(LockLostException.class, second::renew);
        assertThrows(LockLostException.class, second::release);
        assertEquals(List.of("lost"), all.get());
        assertEquals(Cause.NOTHELD, told.get(0).event.cause());
        assertEquals(second.token(), told.get(0).event.token());
    }

    @Test
    void r40_aHookThatFailsDisturbsNothing() throws Exception {
        List<LockEvent> told = new CopyOnWriteArrayList<>();
        Hooks hooks = new Hooks() {
            private void fail(LockEvent event) {
                told.add(event);
                throw new BodyException();
            }

            @Override
            public void onWait(LockEvent event) {
                fail(event);
            }

            @Override
            public void onAcquired(LockEvent event) {
                fail(event);
            }

            @Override
            public void onReleased(LockEvent event) {
                fail(event);
            }
        };
        Locks hooked = ends(Locks.builder(CLIENT, one.uri("a")).hooks(hooks).build());
        Held first = hooked.acquire(name);
        Begun waiting = begin(hooked, name);
        view.waits(name, 1);
        first.release();
        waiting.held().release();
        assertTrue(view.isFree(name));
        assertEquals(5, told.size());
    }

    @Test
    void r42_refusalsAreTyped() {
        view.run("SET", name, "hello");
        refused(WrongTypeException.class, locks, name, "WRONGTYPE", "wrong kind of value");
        view.run("DEL", name);
        view.run("HSET", name, "name", "Ann");
        refused(NotALockException.class, locks, name, "NOTALOCK", "NOTALOCK");
    }

    @Test
    void r42_aQueueThatIsFull() throws Exception {
        needsModule("a script's queue takes 100,000");
        Servers own = servers("one", "--fairlock.max-waiters", "1");
        View look = own.view("a");
        Locks few = locks(own, "a");
        Held held = few.acquire(name);
        Begun waiting = begin(few, name);
        look.waits(name, 1);
        refused(QueueFullException.class, few, name, "QUEUEFULL", "QUEUEFULL");
        held.release();
        waiting.held().release();
    }

    private static void refused(Class<? extends FairlockException> kind, Locks locks, String name, String code, String text) {
        FairlockException error = assertThrows(kind, () -> locks.acquire(name));
        assertEquals(code, error.code());
        assertTrue(error.getMessage().contains(text), error.getMessage());
    }

    @Test
    void r43_oneOwnerHasOnePlace() throws Exception {
        LockOptions me = OPTIONS.owner("me");
        Begun second;
        try (Held held = locks.acquire(name)) {
            Begun first = begin(locks, name, me);
            view.waitsBlocked(name);
            second = begin(locks, name, me);
            TakenOverException error = assertInstanceOf(TakenOverException.class, first.failure());
            assertEquals("TAKENOVER", error.code());
            assertEquals(List.of("me"), view.queue(name));
        }
        second.held().release();
    }

    @Test
    void r44_aServerThatIsNotThere() throws Exception {
        Servers own = servers("one");
        own.tell("kill", "a");
        Locks soon = ends(Locks.builder(CLIENT, own.uri("a")).retryTimeout(ofMillis(300)).build());
        UnavailableException error = assertThrows(UnavailableException.class, () -> soon.acquire(name));
        assertNotNull(error.getCause());
        Begun waiting = begin(locks(own, "a"), name);
        View.pause(200);
        assertFalse(waiting.isDone());
        own.tell("start", "a");
        waiting.held().release();
    }

    @Test
    void r45_argumentsAreCheckedBeforeAnythingIsSent() {
        Servers own = servers("one");
        View look = own.view("a");
        Locks idle = locks(own, "a");
        List<Supplier<LockOptions>> wrong = List.of(() -> leasing(0), () -> leasing(-1), () -> waiting(-1),
                () -> OPTIONS.limit(0), () -> OPTIONS.limit(1_000_001), () -> OPTIONS.owner(""),
                () -> OPTIONS.owner("x".repeat(257)), () -> OPTIONS.syncTimeout(ofMillis(-1)));
        for (Supplier<LockOptions> options : wrong) {
            assertThrows(IllegalArgumentException.class, () -> idle.acquire(name, options.get()));
        }
        assertEquals(List.of(), look.clients());
    }

    @Test
    void r46_closing() throws Exception {
        Servers own = servers("one");
        View look = own.view("a");
        Locks closed = locks(own, "a");
        Held held = closed.acquire(name);
        Begun waiting = begin(closed, name);
        Begun blocked = begin(closed, name, OPTIONS.owner("me"));
        look.waits(name, 2);
        closed.close();
        assertInstanceOf(ClosedException.class, waiting.failure());
        assertInstanceOf(ClosedException.class, blocked.failure());
        assertEquals(List.of(), look.queue(name));
        assertEquals(Cause.CLOSED, lostBy(held));
        until("all connections are closed", () -> look.clients().isEmpty());
        assertThrows(ClosedException.class, () -> closed.acquire(name));
        // The user's client goes on.
        AtomicReference<String> pong = new AtomicReference<>();
        try (var connection = CLIENT.connect(own.uri("a"))) {
            pong.set(connection.sync().ping());
        }
        assertEquals("PONG", pong.get());
    }
}
