package fairlock;

import static fairlock.View.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import fairlock.LockOptions.Module;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisURI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;

/** Rows 41 and 67 to 71: servers without the module, that get it, or that lose it. */
class ScriptsTest extends Fixture {
    /** Collects the log about a server while it is open. */
    private static final class Log extends Handler implements AutoCloseable {
        private static final Logger LOGGER = Logger.getLogger("fairlock");
        private final List<String> lines = new CopyOnWriteArrayList<>();
        private final String address;

        Log(String address) {
            this.address = address;
            LOGGER.addHandler(this);
        }

        @Override
        public void publish(LogRecord each) {
            if (each.getMessage().startsWith(address)) {
                lines.add(each.getMessage());
            }
        }

        @Override
        public void flush() {}

        @Override
        public void close() {
            LOGGER.removeHandler(this);
        }
    }

    private static String address(Servers servers) {
        return "127.0.0.1:" + servers.ports.get("a");
    }

    @Test
    void r41_aServerWithoutTheModule() {
        Servers plain = servers("plain");
        Locks none = locks(plain, "a", OPTIONS.module(Module.REQUIRED));
        long start = System.nanoTime();
        NoModuleException error = assertThrows(NoModuleException.class, () -> none.acquire(name));
        assertAtOnce(start);
        assertEquals(address(plain) + ": the server does not have the fairlock module (unknown command 'FAIRLOCK.ACQUIRE'). "
                + "Load it: \"loadmodule /path/to/libfairlock.so\" in its redis.conf, or MODULE LOAD. See docs/operations.md at "
                + "https://fairlock.example", error.getMessage());
        assertEquals("ERR", error.code());
        assertTrue(plain.view("a").isFree(name));
    }

    @Test
    void r67_theLockIsHeldByScriptsAndThatIsToldOnce() throws Exception {
        Servers plain = servers("plain");
        try (Log log = ends(new Log(address(plain)))) {
            Locks locks = locks(plain, "a");
            assertEquals(Optional.empty(), locks.isNative());
            Held held = locks.acquire(name);
            assertEquals(held.token(), plain.view("a").info(name).get("token"));
            locks.acquire(name + ":other").release();
            assertEquals(Optional.of(false), locks.isNative());
            assertEquals(List.of(address(plain) + ": the server does not have the fairlock module: locks are taken by scripts. "
                    + "Load it for hand-off, sessions and shared locks, or set module to \"required\" to refuse"), log.lines);
            held.release();
        }
    }

    @Test
    void r67_withTheModuleNothingIsTold() throws Exception {
        Servers one = servers("one", "--with-module");
        try (Log log = ends(new Log(address(one)))) {
            Locks locks = locks(one, "a");
            locks.acquire(name).release();
            assertEquals(Optional.of(true), locks.isNative());
            assertEquals(List.of(), log.lines);
        }
    }

    @Test
    void r68_whatNoScriptCanDoIsRefused() throws Exception {
        Servers plain = servers("plain");
        Locks locks = locks(plain, "a");
        Held held = locks.acquire(name);
        Map<String, LockOptions> all = Map.of("session", OPTIONS.session(true), "shared", OPTIONS.shared(true), "limit", OPTIONS.limit(2));
        all.forEach((option, options) -> {
            long start = System.nanoTime();
            NoModuleException error = assertThrows(NoModuleException.class, () -> locks.acquire(name, options));
            assertAtOnce(start);
            String begin = address(plain) + ": " + option + " needs the fairlock module, which the server does not have (";
            assertTrue(error.getMessage().startsWith(begin), error.getMessage());
        });
        assertEquals(List.of(), plain.view("a").queue(name));
        held.release();
    }

    @Test
    void r69_theModuleIsLoadedUnderHoldersAndWaiters() throws Exception {
        Servers plain = servers("plain");
        Locks locks = locks(plain, "a");
        View view = plain.view("a");
        Held held = locks.acquire(name, leasing(9000));
        List<Begun> waiting = twoWait(locks, view);
        plain.tell("load", "a");
        View.pause(10_000);
        assertEquals(held.token(), view.info(name).get("token"));
        held.release();
        haveItInTheirOrder(waiting);
        Locks later = locks(plain, "a");
        later.acquire(name, OPTIONS.session(true)).release();
        assertEquals(Optional.of(true), later.isNative());
        // What no script can do is looked for anew; then all connections leave the scripts.
        assertEquals(Optional.of(false), locks.isNative());
        locks.acquire(name, OPTIONS.session(true)).release();
        assertEquals(Optional.of(true), locks.isNative());
        view.run("SCRIPT", "FLUSH");
        locks.acquire(name).release();
        assertFalse(view.run("INFO", "memory").toString().matches("(?s).*number_of_cached_scripts:[1-9].*"));
    }

    @Test
    void r71_aUserWhoMayNotUseTheModuleGoesOnByScripts() throws Exception {
        Servers plain = servers("plain");
        View view = plain.view("a");
        view.run((Object[]) PermissionsTest.ruleOf("scripts"));
        RedisURI user = RedisURI.Builder.redis("127.0.0.1", plain.ports.get("a")).withAuthentication("scripts", "secret4").build();
        Locks locks = ends(Locks.of(CLIENT, user));
        String lock = "app:" + name;
        Held held = locks.acquire(lock, leasing(9000));
        List<Begun> waiting = new ArrayList<>();
        for (int count = 1; count <= 2; count++) {
            waiting.add(begin(locks, lock));
            view.waitsAwake(lock, count);
        }
        plain.tell("load", "a");
        // What opens connections: they must not lead the others to the module.
        view.run("CLIENT", "KILL", "USER", "scripts");
        Locks others = ends(Locks.of(CLIENT, user));
        assertThrows(NotInTimeException.class, () -> others.acquire(lock, OPTIONS.wait(java.time.Duration.ZERO)));
        held.renew();
        for (LockOptions options : List.of(OPTIONS.session(true), OPTIONS.shared(true))) {
            assertEquals("NOPERM", assertThrows(RefusedException.class, () -> others.acquire(lock, options)).code());
        }
        held.release();
        for (Begun each : waiting) {
            Held next = each.held();
            next.renew();
            assertEquals(next.owner(), locks.info(lock).owner());
            next.release();
        }
        assertEquals(List.of(Optional.of(false), Optional.of(false)), List.of(locks.isNative(), others.isNative()));
    }

    @Test
    void aServerThatDoesNotKnowRoleIsAMaster() throws Exception {
        Locks locks = locks(servers("plain", "--rename-command", "ROLE", "HIDDEN"), "a");
        Held held = locks.acquire(name);
        held.renew();
        held.release();
    }

    /** The way back: the server refuses it while callers wait. */
    @Test
    void r69_theModuleIsUnloadedUnderAHolder() throws Exception {
        Servers one = servers("one", "--with-module");
        Locks locks = locks(one, "a");
        Held held = locks.acquire(name, leasing(9000));
        unload(one.view("a"));
        View view = one.view("a");
        List<Begun> waiting = twoWait(locks, view);
        View.pause(10_000);
        assertFalse(held.isLost());
        assertEquals(held.token(), view.info(name).get("token"));
        held.release();
        haveItInTheirOrder(waiting);
        assertEquals(Optional.of(false), locks.isNative());
    }

    /** It is refused while a connection's last command was the module's. */
    private static void unload(View view) throws Exception {
        for (int tries = 0; ; tries++) {
            view.run("CLIENT", "KILL", "TYPE", "normal");
            try {
                view.run("MODULE", "UNLOAD", "fairlock");
                return;
            } catch (RedisCommandExecutionException refused) {
                assertTrue(tries < 50, refused.getMessage());
                View.pause(100);
            }
        }
    }

    private List<Begun> twoWait(Locks locks, View view) {
        List<Begun> waiting = new ArrayList<>();
        for (int count = 1; count <= 2; count++) {
            waiting.add(begin(locks, name));
            view.waitsAwake(name, count);
        }
        return waiting;
    }

    private static void haveItInTheirOrder(List<Begun> waiting) {
        Held first = waiting.get(0).held();
        assertFalse(waiting.get(1).isDone());
        first.release();
        Held second = waiting.get(1).held();
        assertTrue(second.token() > first.token());
        second.release();
    }

    @Test
    void r70_aHeadWhoseProcessIsGoneIsPassedOver() throws Exception {
        Servers plain = servers("plain");
        Locks locks = locks(plain, "a");
        View view = plain.view("a");
        Held held = locks.acquire(name);
        Process dead = Program.start(Waiter.class, plain.ports.get("a").toString(), name);
        view.waitsAwake(name, 1);
        Begun waiting = begin(locks, name);
        view.waitsAwake(name, 2);
        dead.destroyForcibly().waitFor();
        held.release();
        Held next = waiting.held();
        assertEquals(next.owner(), view.owner(name));
        assertEquals(List.of(), view.queue(name));
        next.release();
    }

    static final class Waiter {
        public static void main(String[] arguments) throws Exception {
            Locks locks = Locks.of(RedisClient.create(), RedisURI.create("127.0.0.1", Integer.parseInt(arguments[0])));
            assertNotNull(locks.acquire(arguments[1]));
        }
    }

    @Test
    void scriptsThatTheServerHasForgottenAreSentAgain() throws Exception {
        Servers plain = servers("plain");
        Locks locks = locks(plain, "a");
        View view = plain.view("a");
        for (int round = 0; round < 2; round++) {
            Held held = locks.acquire(name);
            view.run("SCRIPT", "FLUSH");
            held.renew();
            Begun waiting = begin(locks, name);
            view.waitsAwake(name, 1);
            view.run("SCRIPT", "FLUSH");
            waiting.thread.interrupt();
            until("it has left", () -> view.queue(name).isEmpty());
            held.release();
            assertTrue(view.isFree(name));
        }
    }
}
