package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Row 60: the user that SECURITY.md has for the packages, with the module or without it. */
class PermissionsTest extends Fixture {
    private static final LockOptions BRIEF = OPTIONS.wait(java.time.Duration.ofSeconds(60));

    private static final String USER = View.IS_NATIVE ? "packages" : "scripts";
    private static final String PASSWORD = View.IS_NATIVE ? "secret" : "secret4";

    /** Sets it on each server of the group except Sentinels, and returns them. */
    private static void setUser(Servers group) throws Exception {
        String[] rule = ruleOf(USER);
        group.ports.keySet().stream()
                .filter(name -> !name.equals("s") && !name.equals("proxy"))
                .forEach(name -> group.view(name).run((Object[]) rule));
    }

    /** The command that makes a user. */
    static String[] ruleOf(String user) throws Exception {
        return Files.readString(Path.of("..", "..", "SECURITY.md"))
                .lines()
                .map(String::strip)
                .filter(each -> each.startsWith("ACL SETUSER " + user + " "))
                .findFirst()
                .orElseThrow()
                .split(" ");
    }

    private Locks locksOf(String kind, Servers group) {
        RedisURI.Builder uri = kind.equals("sentinel")
                ? RedisURI.Builder.sentinel("127.0.0.1", group.ports.get("s"), "locks")
                : RedisURI.Builder.redis("127.0.0.1", group.ports.get("a"));
        RedisURI user = uri.withAuthentication(USER, PASSWORD).build();
        if (!kind.equals("cluster")) {
            return ends(Locks.of(CLIENT, user));
        }
        RedisClusterClient client = RedisClusterClient.create(user);
        ends(client::shutdown);
        return ends(Locks.of(client));
    }

    @ParameterizedTest
    @ValueSource(strings = {"one", "replica", "sentinel", "cluster"})
    void r60_thePackagesUserCanDoItAll(String kind) throws Exception {
        Servers group = servers(kind);
        setUser(group);
        Locks locks = locksOf(kind, group);
        List<LockOptions> ways = View.IS_NATIVE
                ? List.of(BRIEF, BRIEF.owner("me"), BRIEF.session(true), BRIEF.shared(true))
                : List.of(BRIEF, BRIEF.owner("me"));
        for (int number = 0; number < 5; number++) { // In a cluster, of several nodes.
            String lock = "app:orders:" + number;
            for (LockOptions options : ways) {
                doItAll(locks, lock, options);
            }
        }
    }

    private void doItAll(Locks locks, String lock, LockOptions options) throws Exception {
        Held held = locks.acquire(lock, BRIEF);
        held.renew();
        assertEquals(held.owner(), locks.info(lock).owner());
        Begun cancelled = begin(locks, lock, options);
        View.until("it waits", () -> locks.info(lock).waiting() == 1);
        cancelled.thread.interrupt();
        assertInstanceOf(InterruptedException.class, cancelled.failure());
        assertEquals(0, locks.info(lock).waiting());
        Begun waiting = begin(locks, lock, options);
        View.until("it waits", () -> locks.info(lock).waiting() == 1);
        held.release();
        waiting.held().release();
        FairLock again = locks.get(lock);
        again.lock();
        again.unlock();
    }

    @Test
    void r60_whatItMayNotDoIsToldWithTheCureInIt() throws Exception {
        Servers group = servers("one");
        setUser(group);
        Locks locks = locksOf("one", group);
        RefusedException name = assertThrows(RefusedException.class, () -> locks.acquire("other:orders"));
        assertEquals("NOPERM", name.code());
        assertTrue(name.getMessage().contains("SECURITY.md"), name.getMessage());
        group.view("a").run("ACL", "SETUSER", USER, "-role");
        RefusedException role = assertThrows(RefusedException.class, () -> locks.acquire("app:orders"));
        assertTrue(role.getMessage().contains("syncTimeout"), role.getMessage());
        locks.acquire("app:orders", OPTIONS.syncTimeout(java.time.Duration.ZERO)).release();
    }
}
