package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
import org.springframework.integration.support.locks.LockRegistry;

/** The configuration for Spring Integration in docs/recipes.md, in two instances of a program. */
class SpringTest extends Fixture {
    private static final String IMPORTS = """
            import fairlock.*;
            import io.lettuce.core.*;
            import org.springframework.context.annotation.*;
            import org.springframework.integration.leader.DefaultCandidate;
            import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;
            import org.springframework.integration.support.locks.LockRegistry;
            """;

    private final Servers own = servers("one");
    private final View view = own.view("a");

    private Class<?> recipe(Path folder) throws Exception {
        String[] before = Files.readString(Path.of("..", "..", "docs", "recipes.md")).split("```java\n");
        assertEquals(2, before.length);
        String text = before[1].split("```")[0].replace("redis://localhost", "redis://127.0.0.1:" + own.ports.get("a"));
        Program.compile("Locking", IMPORTS + "public " + text, folder);
        URLClassLoader loader = ends(new URLClassLoader(new URL[] {folder.toUri().toURL()}));
        return loader.loadClass("Locking");
    }

    private static boolean isLeader(AnnotationConfigApplicationContext instance) {
        return instance.getBean(LockRegistryLeaderInitiator.class).getContext().isLeader();
    }

    private AnnotationConfigApplicationContext instance(Class<?> recipe) {
        return ends(new AnnotationConfigApplicationContext(recipe));
    }

    @Test
    void aLeaderAndTheNextOne(@TempDir Path folder) throws Exception {
        Class<?> recipe = recipe(folder);
        AnnotationConfigApplicationContext first = instance(recipe);
        View.until("the first leads", () -> isLeader(first));
        String owner = (String) view.owner("spring:reports");
        assertNotNull(owner);
        AnnotationConfigApplicationContext second = instance(recipe);
        View.until("the second has asked", () -> second.getBean(Locks.class).isNative().isPresent());
        assertFalse(isLeader(second));
        assertEquals(owner, view.owner("spring:reports"));
        first.close();
        View.until("the second leads", () -> isLeader(second));
        assertFalse(view.isFree("spring:reports"));
    }

    @Test
    void aLeaderWhoseLockIsAnothersLeadsNoMore(@TempDir Path folder) throws Exception {
        AnnotationConfigApplicationContext instance = instance(recipe(folder));
        View.until("it leads", () -> isLeader(instance));
        String taking = "redis.call('DEL', KEYS[1]) redis.call('HSET', KEYS[1], 'another', 1)";
        view.run("EVAL", taking, 1, "spring:reports");
        View.until("it leads no more", () -> !isLeader(instance));
        view.run("DEL", "spring:reports");
        View.until("it leads again", () -> isLeader(instance));
    }

    @Test
    void oneAtATimeInTheirOrder(@TempDir Path folder) throws Exception {
        Class<?> recipe = recipe(folder);
        LockRegistry<?> here = instance(recipe).getBean(LockRegistry.class);
        LockRegistry<?> there = instance(recipe).getBean(LockRegistry.class);
        List<Integer> order = new CopyOnWriteArrayList<>();
        List<Thread> waiting = new CopyOnWriteArrayList<>();
        here.executeLocked(name, () -> {
            assertFalse(there.obtain(name).tryLock());
            for (int number = 1; number <= 4; number++) {
                waiting.add(begin(number % 2 == 0 ? here : there, order, number));
                view.waits("spring:" + name, number);
            }
            assertEquals(List.of(), order);
        });
        for (Thread each : waiting) {
            each.join();
        }
        assertEquals(List.of(1, 2, 3, 4), order);
        assertTrue(view.isFree("spring:" + name));
    }

    private Thread begin(LockRegistry<?> registry, List<Integer> order, int number) {
        Thread thread = new Thread(() -> {
            try {
                registry.executeLocked(name, () -> {
                    order.add(number);
                });
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        });
        thread.start();
        return thread;
    }
}
