package fairlock.internal;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.Stream;

/** The scripts of clients/lua: what servers without the module run in place of its commands. */
enum Script {
    ACQUIRE,
    RELEASE,
    RENEW,
    CANCEL;

    private final String text;
    private final String digest;

    Script() {
        String file = name().toLowerCase(Locale.ROOT) + ".lua";
        try (InputStream source = Script.class.getResourceAsStream(file)) {
            byte[] bytes = source.readAllBytes();
            text = new String(bytes, StandardCharsets.UTF_8);
            digest = String.format("%040x", new BigInteger(1, MessageDigest.getInstance("SHA-1").digest(bytes)));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error); // Every Java has it.
        }
    }

    /** The script of a command; null: it has none. */
    static Script of(Object command) {
        return Stream.of(values()).filter(each -> ("FAIRLOCK." + each).equals(command)).findFirst().orElse(null);
    }

    /** Whether a script can do what a command asks for: none blocks in the server, or has sessions and shared locks. */
    static boolean does(Object... command) {
        if (of(command[0]) == null) {
            return false;
        }
        List<Object> options = List.of(command).subList(3, command.length);
        return !options.contains("SESSION") && !options.contains("SHARED")
                && (of(command[0]) != ACQUIRE || options.contains("ENQUEUE") || options.contains("NOWAIT"));
    }

    /** A key or a channel of a lock, by Redisson's rule. */
    static String key(String prefix, String name) {
        return prefix + ":" + (name.contains("{") ? name : "{" + name + "}");
    }

    static String queue(String name) {
        return key("redisson_lock_queue", name);
    }

    /** The words to send in place of a command, with the script's digest or its text. */
    Object[] words(boolean isText, Object... command) {
        String name = command[1].toString();
        List<Object> words = new ArrayList<>(List.of(isText ? "EVAL" : "EVALSHA", isText ? text : digest, 4, name,
                queue(name), key("redisson_lock_timeout", name), key("fairlock_token", name)));
        words.addAll(List.of(command).subList(2, command.length));
        return words.toArray();
    }
}
