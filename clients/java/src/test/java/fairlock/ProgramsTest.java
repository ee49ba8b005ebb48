package fairlock;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;

/** The configuration for Spring Integration in docs/recipes.md. */
class ProgramsTest extends Fixture {
    private static String found(String pattern, Path page) throws Exception {
        Matcher matcher = Pattern.compile(pattern, Pattern.DOTALL).matcher(Files.readString(page));
        assertTrue(matcher.find(), pattern);
        return matcher.group(1);
    }

    private static boolean isLeader(AnnotationConfigApplicationContext instance) {
        return instance.getBean(LockRegistryLeaderInitiator.class).getContext().isLeader();
    }

    @Test
    void aLeaderOfSpringIntegrationAndTheNextOne(@TempDir Path folder) throws Exception {
        String imports = List.of("fairlock.*", "io.lettuce.core.*", "org.springframework.context.annotation.*",
                        "org.springframework.integration.leader.DefaultCandidate",
                        "org.springframework.integration.support.leader.LockRegistryLeaderInitiator",
                        "org.springframework.integration.support.locks.LockRegistry")
                .stream().map(each -> "import " + each + ";\n").reduce("", String::concat);
        String recipe = found("```java\n(.*?)```", Path.of("..", "..", "docs", "recipes.md"));
        compile("Locking", imports + "public " + recipe.replace("redis://localhost", "redis://127.0.0.1:" + PORT), folder);
        try (URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()});
                var first = new AnnotationConfigApplicationContext(loader.loadClass("Locking"))) {
            until("the first leads", () -> isLeader(first));
            List<String> owner = REDIS.hkeys("spring:reports");
            try (var second = new AnnotationConfigApplicationContext(loader.loadClass("Locking"))) {
                until("the second has asked", () -> second.getBean(Locks.class).isNative().isPresent());
                assertFalse(isLeader(second));
                first.close();
                until("the second leads", () -> isLeader(second));
                assertNotEquals(owner, REDIS.hkeys("spring:reports"));
            }
        }
    }
}
