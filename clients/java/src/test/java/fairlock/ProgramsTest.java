package fairlock;

import static fairlock.View.until;
import static java.time.Duration.ofSeconds;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import fairlock.internal.Backend;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Rows 55 to 59, 61 and 66: programs and their environment. */
class ProgramsTest extends Fixture {
    private final Servers one = Servers.ONE;
    private final View view = one.view("a");
    private final Locks locks = locks(one, "a");

    private String port() {
        return one.ports.get("a").toString();
    }

    private static RedisURI uri(String port) {
        return RedisURI.create("127.0.0.1", Integer.parseInt(port));
    }

    @Test
    void r55_aChildHasConnectionsOfItsOwn() throws Exception {
        Held ours = locks.acquire(name + ":parent");
        List<Process> children = new ArrayList<>();
        for (int count = 0; count < 3; count++) {
            children.add(Program.start(Child.class, port(), name));
        }
        List<Long> tokens = new ArrayList<>();
        while (!children.isEmpty()) {
            until("a child has it", () -> holder(children) != null);
            Process child = holder(children);
            assertTrue(Collections.disjoint(sockets(child.pid()), sockets(ProcessHandle.current().pid())));
            tokens.add((Long) view.info(name).get("token"));
            child.getOutputStream().close();
            assertEquals(0, child.waitFor());
            children.remove(child);
        }
        assertEquals(tokens.stream().sorted().distinct().toList(), tokens);
        assertEquals(ours.token(), view.info(ours.name()).get("token"));
        ours.release();
    }

    private Process holder(List<Process> children) {
        String owner = String.valueOf(view.owner(name));
        return children.stream().filter(each -> owner.contains(":" + each.pid() + ":")).findFirst().orElse(null);
    }

    private static Set<String> sockets(long pid) throws IOException {
        try (Stream<Path> all = Files.list(Path.of("/proc/" + pid + "/fd"))) {
            return all.map(ProgramsTest::target).filter(each -> each.startsWith("socket:")).collect(Collectors.toSet());
        }
    }

    private static String target(Path link) {
        try {
            return Files.readSymbolicLink(link).toString();
        } catch (IOException error) {
            return ""; // Closed in the meantime.
        }
    }

    /** Holds the lock until its input ends. */
    static final class Child {
        public static void main(String[] arguments) throws Exception {
            RedisClient client = RedisClient.create();
            try (Locks locks = Locks.of(client, uri(arguments[0])); Held held = locks.acquire(arguments[1])) {
                System.in.read();
            }
            System.exit(0);
        }
    }

    @Test
    void r56_outOfDescriptorsTheHolderReleasesAndWaitersWait() throws Exception {
        Process process = Program.startWithDescriptors(150, Short.class, port(), name);
        assertEquals("renewed released [first, second, third]", Program.output(process).strip());
    }

    static final class Short {
        private static final List<String> ORDER = new CopyOnWriteArrayList<>();

        public static void main(String[] arguments) throws Exception {
            Locks locks = Locks.of(RedisClient.create(), uri(arguments[0]));
            String name = arguments[1];
            load(locks, name);
            List<InputStream> all = new ArrayList<>();
            Held held = locks.acquire(name, leasing(9000));
            takeDescriptors(all);
            List<Thread> waiting = begin(locks, name);
            View.pause(5000);
            System.out.print(held.isLost() ? "" : "renewed ");
            held.release();
            System.out.print("released ");
            until("the first has it", () -> !ORDER.isEmpty());
            for (InputStream each : all) {
                each.close();
            }
            for (Thread each : waiting) {
                each.join();
            }
            System.out.println(ORDER);
            System.exit(0);
        }

        /** All classes that it needs, from folders that could not be opened later. */
        private static void load(Locks locks, String name) throws Exception {
            assertThrows(NotInTimeException.class, () -> Locks.of(RedisClient.create(), uri("1")).acquire(name, waiting(100)));
            Held held = locks.acquire(name);
            List<Thread> waiting = begin(locks, name);
            held.release();
            for (Thread each : waiting) {
                each.join();
            }
            ORDER.clear();
        }

        /** Two that wait blocked, one of them for a session, and one that does not. */
        private static List<Thread> begin(Locks locks, String name) {
            List<Thread> threads = new ArrayList<>();
            LockOptions[] options = {OPTIONS.owner("first"), OPTIONS.session(View.IS_NATIVE), OPTIONS};
            List<String> names = List.of("first", "second", "third");
            for (int index = 0; index < options.length; index++) {
                LockOptions each = options[index];
                Thread thread = new Thread(() -> take(locks, name, each), names.get(index));
                thread.start();
                threads.add(thread);
                until("it waits", () -> locks.info(name).waiting() == threads.size());
            }
            return threads;
        }

        private static void take(Locks locks, String name, LockOptions options) {
            try (Held held = locks.acquire(name, options)) {
                ORDER.add(Thread.currentThread().getName());
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        }

        private static void takeDescriptors(List<InputStream> all) {
            try {
                while (true) {
                    all.add(new FileInputStream("/dev/null"));
                }
            } catch (IOException error) {
                // That was the last one.
            }
        }
    }

    @Test
    void r57_whatIsNoClientIsRefused() {
        RedisURI uri = one.uri("a");
        for (var made : List.<Runnable>of(() -> Locks.of(null, uri), () -> Locks.of(CLIENT, null),
                () -> Locks.of((RedisClusterClient) null), () -> Locks.of(CLIENT, new RedisURI()))) {
            String said = assertThrows(IllegalArgumentException.class, made::run).getMessage();
            assertTrue(said.contains("Redis"), said);
        }
    }

    @Test
    void r58_namesAndOptionsAreChecked() {
        Servers own = servers("one");
        Locks idle = locks(own, "a");
        for (String none : new String[] {"", null}) {
            refused(() -> idle.acquire(none));
            refused(() -> idle.tryAcquire(none));
            refused(() -> idle.get(none));
            refused(() -> idle.info(none));
        }
        refused(() -> idle.acquire(name, null));
        refused(() -> OPTIONS.lease(null));
        refused(() -> OPTIONS.minReplicas(-1));
        refused(() -> Locks.builder(CLIENT, own.uri("a")).defaults(null));
        refused(() -> Locks.builder(CLIENT, own.uri("a")).hooks(null));
        refused(() -> Locks.builder(CLIENT, own.uri("a")).commandTimeout(null));
        assertEquals(List.of(), own.view("a").clients());
    }

    /** Object has a wait of its own, which takes milliseconds. */
    @Test
    @SuppressWarnings("deprecation")
    void r58_aWaitInMillisecondsIsRefused() {
        String said = refused(() -> OPTIONS.wait(5000));
        assertEquals("wait takes a Duration: Duration.ofMillis(5000)", said);
    }

    private interface Work {
        Object run() throws Exception;
    }

    private static String refused(Work work) {
        return assertThrows(IllegalArgumentException.class, work::run).getMessage();
    }

    @Test
    void r59_anErrorSaysWhatHappenedFirst() {
        Servers own = servers("one");
        Locks down = locks(own, "a");
        own.tell("kill", "a");
        String address = "127.0.0.1:" + own.ports.get("a");
        Exception error = assertThrows(NotInTimeException.class, () -> down.acquire(name, OPTIONS.wait(ofSeconds(2))));
        assertEquals(name + ": not acquired within 2 s: " + address + ": Connection refused", error.getMessage());
        assertNotNull(error.getCause());
    }

    @Test
    void r59_aWrongPasswordIsRefusedAtOnce() {
        Servers own = servers("one");
        own.view("a").run("CONFIG", "SET", "requirepass", "secret");
        RedisURI wrong = RedisURI.builder(own.uri("a")).withHost("127.0.0.1").withPort(own.ports.get("a"))
                .withPassword("guess".toCharArray()).build();
        long start = System.nanoTime();
        refusedWith("NOAUTH", "withAuthentication", locks(own, "a"));
        refusedWith("WRONGPASS", "password of the RedisURI", ends(Locks.of(CLIENT, wrong)));
        assertAtOnce(start);
    }

    private void refusedWith(String code, String hint, Locks locks) {
        RefusedException error = assertThrows(RefusedException.class, () -> locks.acquire(name));
        assertEquals(code, error.code());
        assertTrue(error.getMessage().startsWith(name + ": 127.0.0.1:") && error.getMessage().contains(hint), error.getMessage());
    }

    /** An inconsistent class path: waiting would not help. */
    @Test
    void r59_anErrorOfTheProgramIsThrownAtOnce() {
        Servers own = servers("one");
        LocksBuilder builder = new LocksBuilder(longest -> broken(longest, own.uri("a")));
        long start = System.nanoTime();
        assertThrows(AbstractMethodError.class, () -> ends(builder.build()).acquire(name));
        assertAtOnce(start);
    }

    private static Backend broken(Duration longest, RedisURI uri) {
        Backend real = new fairlock.internal.LettuceBackend(CLIENT, uri, longest);
        return (Backend) Proxy.newProxyInstance(Backend.class.getClassLoader(), new Class<?>[] {Backend.class}, (proxy, method, arguments) -> {
            if (method.getName().equals("open")) {
                return real.open((fairlock.internal.Address) arguments[0]).thenApply(line -> {
                    throw new AbstractMethodError("of another version");
                });
            }
            return method.invoke(real, arguments);
        });
    }

    @Test
    void r61_whoHoldsItAndHowManyWait() throws Exception {
        LockInfo free = locks.info(name);
        assertEquals(new LockInfo(null, 0, 0, null, false, 0, 0, 0), free);
        Held held = locks.acquire(name, OPTIONS.session(View.IS_NATIVE));
        Begun waiting = begin(locks, name);
        view.waits(name, 1);
        LockInfo info = locks.info(name);
        assertTrue(0 < info.lease() && info.lease() <= 30_000);
        assertEquals(new LockInfo(held.owner(), 1, info.lease(), held.token(), View.IS_NATIVE, 1, 1, 1), info);
        held.release();
        waiting.held().release();
        if (View.IS_NATIVE) {
            try (Held shared = locks.acquire(name, OPTIONS.limit(3)); Held other = locks.acquire(name, OPTIONS.limit(3))) {
                assertEquals(List.of(2L, 3L), List.of(locks.info(name).holders(), locks.info(name).limit()));
            }
        }
        view.run("HSET", name, "a script", 1);
        assertEquals("a script", locks.info(name).owner());
        assertEquals(null, locks.info(name).token());
        view.run("DEL", name);
    }

    @Test
    void r66_twentyCallersLeaveNothingInTheLog(@TempDir Path folder) throws Exception {
        Path errors = folder.resolve("errors");
        Process process = Program.start(Program.loudly(), Twenty.class.getName(), errors, port(), name);
        assertEquals("20", Program.output(process).strip());
        assertEquals("", Program.log(errors));
    }

    static final class Twenty {
        public static void main(String[] arguments) throws Exception {
            // Renewals are due all the time.
            LockOptions options = leasing(3000);
            List<Thread> threads = new ArrayList<>();
            List<Long> tokens = new CopyOnWriteArrayList<>();
            try (Locks locks = Locks.of(RedisClient.create(), uri(arguments[0]))) {
                for (int count = 0; count < 20; count++) {
                    threads.add(new Thread(() -> {
                        try (Held held = locks.acquire(arguments[1], options)) {
                            tokens.add(held.token());
                            View.pause(tokens.size() % 5 == 0 ? 1100 : 20);
                        } catch (InterruptedException error) {
                            throw new AssertionError(error);
                        }
                    }));
                }
                threads.forEach(Thread::start);
                for (Thread each : threads) {
                    each.join();
                }
            }
            System.out.println(tokens.size());
            System.exit(0);
        }
    }
}
