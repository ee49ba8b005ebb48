package fairlock;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;

/**
 * The options of one lock, or the defaults of a Locks. Immutable: each method returns a copy. Options that are not set
 * are those of the Locks. An argument out of range is an IllegalArgumentException at once.
 */
public final class LockOptions {
    private static final int MAX_LIMIT = 1_000_000;
    private static final int MAX_REPLICAS = 1_000_000;
    private static final int MAX_OWNER = 256;
    /** The server's greatest number of milliseconds. */
    private static final Duration MAX = Duration.ofMillis(4_503_599_627_370_496L);

    /** What to do if the server does not have the module. */
    public enum Module {
        /** Locks are taken by scripts: without sessions, shared and limited locks. */
        AUTO,
        /** NoModuleException. */
        REQUIRED
    }

    private static final LockOptions NONE = new LockOptions(Map.of());

    private final Map<String, Object> values;

    private LockOptions(Map<String, Object> values) {
        this.values = values;
    }

    /** Without any option. */
    public static LockOptions options() {
        return NONE;
    }

    /** The longest wait; zero: try once. Null (the default): no limit. */
    public LockOptions wait(Duration wait) {
        return with("wait", wait == null ? null : checked("wait", wait, Duration.ZERO));
    }

    /** Not an option: it keeps {@code wait(5000)} from being Object.wait. Write {@code wait(Duration.ofSeconds(5))}. */
    @Deprecated
    public LockOptions wait(int milliseconds) {
        throw new IllegalArgumentException("wait takes a Duration: Duration.ofMillis(" + milliseconds + ")");
    }

    /** The lease of the acquisition and of each renewal. Default: 30 s. */
    public LockOptions lease(Duration lease) {
        return with("lease", checked("lease", lease, Duration.ofMillis(1)));
    }

    /** Whether the lease is renewed in the background, every third of it. Default: yes. */
    public LockOptions renew(boolean isOn) {
        return with("renew", isOn);
    }

    /** Whether the server renews the lease, as long as a connection of the lock's own is open. Default: no. */
    public LockOptions session(boolean isOn) {
        return with("session", isOn);
    }

    /** The owner, 1 to 256 bytes. Null (the default): {@code host:pid:uuid}, new for each acquisition. */
    public LockOptions owner(String owner) {
        if (owner != null) {
            int bytes = owner.getBytes(StandardCharsets.UTF_8).length;
            if (bytes < 1 || bytes > MAX_OWNER || owner.equals("*")) {
                throw new IllegalArgumentException("owner is not 1 to " + MAX_OWNER + " bytes, or is *: " + owner);
            }
        }
        return with("owner", owner);
    }

    /** Whether the same thread holds the lock again at once. Default: no. */
    public LockOptions reentrant(boolean isOn) {
        return with("reentrant", isOn);
    }

    /** Whether the lock is held together with others that are shared. Default: no. */
    public LockOptions shared(boolean isOn) {
        return with("shared", isOn);
    }

    /** The most holders of the lock, 1 to 1,000,000; implies shared. Null (the default): no limit. */
    public LockOptions limit(Integer limit) {
        if (limit != null && (limit < 1 || limit > MAX_LIMIT)) {
            throw new IllegalArgumentException("limit is not from 1 to " + MAX_LIMIT + ": " + limit);
        }
        return with("limit", limit);
    }

    /** The longest wait for replicas to confirm an acquisition; zero: they are not asked. Default: 1 s. */
    public LockOptions syncTimeout(Duration timeout) {
        return with("syncTimeout", checked("syncTimeout", timeout, Duration.ZERO));
    }

    /**
     * How many replicas must confirm an acquisition or a renewal. Null (the default): 1 if Sentinels or the cluster
     * know a replica of the master, even one that is down. Otherwise the connected ones are asked, and one has to
     * confirm.
     */
    public LockOptions minReplicas(Integer replicas) {
        if (replicas != null && (replicas < 0 || replicas > MAX_REPLICAS)) {
            throw new IllegalArgumentException("minReplicas is not from 0 to " + MAX_REPLICAS + ": " + replicas);
        }
        return with("minReplicas", replicas);
    }

    /** How long a waiter that has died keeps its place. Default: 30 s. */
    public LockOptions patience(Duration patience) {
        return with("patience", checked("patience", patience, Duration.ofMillis(1)));
    }

    /** Whether locks may be taken by scripts where the server does not have the module. Default: AUTO. */
    public LockOptions module(Module module) {
        if (module == null) {
            throw new IllegalArgumentException("module is null");
        }
        return with("module", module);
    }

    /** These options, completed by others. */
    public LockOptions or(LockOptions defaults) {
        Map<String, Object> merged = new HashMap<>(defaults.values);
        merged.putAll(values);
        return new LockOptions(Collections.unmodifiableMap(merged));
    }

    /** The value of an option, or its default. */
    @SuppressWarnings("unchecked")
    public <T> T get(String option, T otherwise) {
        return values.containsKey(option) ? (T) values.get(option) : otherwise;
    }

    /** The check of {@code wait}, {@code lease} and so on, for other classes with durations as options. */
    static Duration checked(String option, Duration duration, Duration least) {
        if (duration == null || duration.compareTo(least) < 0 || duration.compareTo(MAX) > 0) {
            throw new IllegalArgumentException(option + " is not from " + least + " to " + MAX + ": " + duration);
        }
        return duration;
    }

    private LockOptions with(String option, Object value) {
        Map<String, Object> changed = new HashMap<>(values);
        changed.put(option, value);
        return new LockOptions(Collections.unmodifiableMap(changed));
    }
}
