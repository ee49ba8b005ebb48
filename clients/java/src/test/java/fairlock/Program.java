package fairlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import javax.tools.ToolProvider;

/** A Java program in a process of its own. */
final class Program {
    private Program() {}

    static Process start(Class<?> program, String... arguments) throws IOException {
        return builder(System.getProperty("java.class.path"), program.getName(), arguments)
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
    }

    /** One with a limit of descriptors. */
    static Process startWithDescriptors(int count, Class<?> program, String... arguments) throws IOException {
        ProcessBuilder builder = builder(System.getProperty("java.class.path"), program.getName(), arguments);
        builder.command().addAll(0, List.of("sh", "-c", "ulimit -n " + count + "; exec \"$@\"", "sh"));
        return builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
    }

    /** Leaves the class in the folder. */
    static void compile(String name, String text, Path folder) throws IOException {
        Path source = Files.writeString(folder.resolve(name + ".java"), text);
        int status = ToolProvider.getSystemJavaCompiler().run(null, null, null,
                "-cp", System.getProperty("java.class.path"), "-d", folder.toString(), source.toString());
        assertEquals(0, status);
    }

    /** The class path without slf4j, so that Lettuce's warnings show. */
    static String loudly() {
        return Stream.of(System.getProperty("java.class.path").split(File.pathSeparator))
                .filter(each -> !each.contains("slf4j"))
                .collect(Collectors.joining(File.pathSeparator));
    }

    /** One with its errors in a file. */
    static Process start(String classPath, String program, Path errors, String... arguments) throws IOException {
        return builder(classPath, program, arguments).redirectError(errors.toFile()).start();
    }

    private static ProcessBuilder builder(String classPath, String program, String... arguments) {
        String java = System.getProperty("java.home") + File.separator + "bin" + File.separator + "java";
        List<String> command = new ArrayList<>(List.of(java, "-XX:TieredStopAtLevel=1", "-cp", classPath, program));
        command.addAll(List.of(arguments));
        return new ProcessBuilder(command);
    }

    /** What is in a log besides the warning that there is where the server does not have the module. */
    static String log(Path file) throws IOException {
        List<String> lines = Files.readAllLines(file);
        if (!View.IS_NATIVE) {
            assertTrue(lines.size() > 1 && lines.get(1).endsWith(" to refuse"), lines.toString());
            lines = lines.subList(2, lines.size());
        }
        return String.join("\n", lines);
    }

    static String output(Process process) throws IOException, InterruptedException {
        String output = new String(process.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8);
        assertEquals(0, process.waitFor());
        return output;
    }
}
