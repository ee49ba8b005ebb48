package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Row 53: the program of the README. */
class ReadmeTest extends Fixture {
    @Test
    void r53_theProgramOfTheReadmeRuns(@TempDir Path folder) throws Exception {
        String text = Files.readString(Path.of("README.md"));
        String program = found("```java\n(.*?)```", text);
        String promised = found("It prints .*?\n\n((?:    [^\n]*\n)+)", text);
        // A reader's server has the usual port.
        String local = program.replace("redis://localhost", "redis://localhost:" + Servers.ONE.ports.get("a"));
        Path source = Files.writeString(folder.resolve("Hello.java"), local);
        String classes = System.getProperty("java.class.path");
        int status = ToolProvider.getSystemJavaCompiler()
                .run(null, null, null, "-cp", classes, "-d", folder.toString(), source.toString());
        assertEquals(0, status);
        // Where nothing keeps Lettuce from warning, there is nothing to warn of.
        Path warnings = folder.resolve("warnings");
        Process process = Program.start(folder + File.pathSeparator + Program.loudly(), "Hello", warnings);
        String output = Program.output(process);
        assertEquals("", Files.readString(warnings));
        String pattern = promised.replaceAll("(?m)^    ", "").replaceAll("\\d{16}", "\\\\d{16}");
        assertTrue(Pattern.matches(pattern, output), output);
    }

    private static String found(String pattern, String text) {
        Matcher matcher = Pattern.compile(pattern, Pattern.DOTALL).matcher(text);
        assertTrue(matcher.find(), pattern);
        return matcher.group(1);
    }
}
