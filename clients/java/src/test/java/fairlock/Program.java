package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A Java program in a process of its own. */
final class Program {
    private Program() {}

    static Process start(Class<?> program, String... arguments) throws IOException {
        return builder(System.getProperty("java.class.path"), program.getName(), arguments)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
    }

    /** One that may have so many descriptors. */
    static Process startWithDescriptors(int count, Class<?> program, String... arguments) throws IOException {
        ProcessBuilder builder = builder(System.getProperty("java.class.path"), program.getName(), arguments);
        builder.command().addAll(0, List.of("sh", "-c", "ulimit -n " + count + "; exec \"$@\"", "sh"));
        return builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    /** The class path on which nothing keeps Lettuce from warning. */
    static String loudly() {
        return Stream.of(System.getProperty("java.class.path").split(File.pathSeparator))
                .filter(each -> !each.contains("slf4j"))
                .collect(Collectors.joining(File.pathSeparator));
    }

    /** One whose errors are kept in a file. */
    static Process start(String classPath, String program, Path errors, String... arguments) throws IOException {
        return builder(classPath, program, arguments).redirectError(errors.toFile()).start();
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
