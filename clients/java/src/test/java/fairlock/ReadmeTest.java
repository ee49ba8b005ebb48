package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Rows 48 and 53: the programs of the README. */
class ReadmeTest extends Fixture {
    private static final String CLASSES = System.getProperty("java.class.path");

    @Test
    void r53_theProgramOfTheReadmeRuns(@TempDir Path folder) throws Exception {
        String text = Files.readString(Path.of("README.md"));
        String program = found("```java\n(.*?)```", text);
        String promised = found("It prints .*?\n\n((?:    [^\n]*\n)+)", text);
        // A reader's server has the usual port.
        String local = program.replace("redis://localhost", "redis://localhost:" + Servers.ONE.ports.get("a"));
        // Where nothing keeps Lettuce from warning, there is nothing to warn of.
        Path warnings = folder.resolve("warnings");
        String output = run(local, folder, Program.loudly(), warnings);
        assertEquals("", Program.log(warnings));
        String pattern = promised.replaceAll("(?m)^    ", "").replaceAll("\\d{16}", "\\\\d{16}");
        assertTrue(Pattern.matches(pattern, output), output);
    }

    /** On an embedded Redis, which has no module. */
    @Test
    void r48_testsOfAProgramNeedNoModule(@TempDir Path folder) throws Exception {
        String lines = found("embedded-redis:1.4.3.*?```\n(.*?)```", Files.readString(Path.of("README.md")));
        assertEquals(10, lines.lines().count());
        String program = "import static fairlock.LockOptions.options;\n"
                + "import static org.junit.jupiter.api.Assertions.*;\n"
                + "import fairlock.*; import fairlock.LockLostException.Cause; import io.lettuce.core.*;\n"
                + "import java.time.Duration; import java.util.concurrent.TimeUnit; import redis.embedded.RedisServer;\n"
                + "public class Hello { public static void main(String[] arguments) throws Exception {\n"
                + lines.replace("6390", Integer.toString(EmbeddedTest.freePort()))
                + "System.out.println(held.name()); System.exit(0); } }";
        assertEquals("orders\n", run(program, folder, CLASSES, folder.resolve("warnings")));
    }

    /** What it prints. */
    private static String run(String program, Path folder, String classPath, Path warnings) throws Exception {
        Program.compile("Hello", program, folder);
        Process process = Program.start(folder + File.pathSeparator + classPath, "Hello", warnings);
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor(), Files.readString(warnings));
        return output;
    }

    private static String found(String pattern, String text) {
        Matcher matcher = Pattern.compile(pattern, Pattern.DOTALL).matcher(text);
        assertTrue(matcher.find(), pattern);
        return matcher.group(1);
    }
}
