package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** A Java program in a process of its own. */
final class Program {
    private Program() {}

    static Process start(Class<?> program, String... arguments) throws IOException {
        return builder(System.getProperty("java.class.path"), program.getName(), arguments)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
    }

    /** One whose errors are kept in a file. */
    static Process start(String classPath, String program, Path errors) throws IOException {
        return builder(classPath, program).redirectError(errors.toFile()).start();
    }

    private static ProcessBuilder builder(String classPath, String program, String... arguments) {
        String java = System.getProperty("java.home") + File.separator + "bin" + File.separator + "java";
        List<String> command = new ArrayList<>(List.of(java, "-XX:TieredStopAtLevel=1", "-cp", classPath, program));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command);
    }

    static String output(Process process) throws IOException, InterruptedException {
        String output = new String(process.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor());
        return output;
    }
}
