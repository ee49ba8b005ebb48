package fairlock;

import io.lettuce.core.RedisURI;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.Stream;

/** Servers for a test, by clients/testing/servers. */
final class Servers implements AutoCloseable {
    private static final String PROGRAM = Optional.ofNullable(System.getenv("FAIRLOCK_SERVERS"))
            .orElse(Path.of("..", "testing", "servers").toString());
    /** For tests that leave it intact. */
    static final Servers ONE = new Servers("one");

    final Map<String, Integer> ports = new HashMap<>();
    private final Process process;
    private final PrintStream input;
    private final BufferedReader output;

    Servers(String... arguments) {
        try {
            List<String> command = Stream.concat(Stream.of(PROGRAM), Stream.of(arguments)).toList();
            process = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
            input = new PrintStream(process.getOutputStream(), true, StandardCharsets.UTF_8);
            output = process.inputReader();
            for (String line = output.readLine(); !"ready".equals(line); line = output.readLine()) {
                String[] words = line.split(" ");
                ports.put(words[0], Integer.valueOf(words[1]));
            }
        } catch (IOException | NullPointerException error) {
            throw new AssertionError("no servers: see standard error", error);
        }
    }

    String tell(Object... words) {
        input.println(String.join(" ", Stream.of(words).map(Object::toString).toList()));
        try {
            String answer = output.readLine();
            if (answer == null || !answer.startsWith("ok")) {
                throw new AssertionError(answer);
            }
            return answer.substring(2).trim();
        } catch (IOException error) {
            throw new AssertionError(error);
        }
    }

    RedisURI uri(String name) {
        return RedisURI.create("127.0.0.1", ports.get(name));
    }

    View view(String name) {
        return new View(ports.get(name));
    }

    @Override
    public void close() {
        input.close();
        try {
            process.waitFor();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
