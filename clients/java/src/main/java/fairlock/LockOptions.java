package fairlock;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;

/**
 * What can be said of one lock, or of all of a Locks. Immutable: each method returns another. What is not said is as Locks
 * has it. An argument out of range is an IllegalArgumentException at once.
 */
public final class LockOptions {
    private static final int MAX_LIMIT = 1_000_000;
    private static final int MAX_REPLICAS = 1_000_000;
    private static final int MAX_OWNER = 256;
    /** The server's greatest number of milliseconds. */
    private static final Duration MAX = Duration.ofMillis(4_503_599_627_370_496L);

    private static final LockOptions NONE = new LockOptions(Map.of());

    private final Map<String, Object> values;

    private LockOptions(Map<String, Object> values) {
        this.values = values;
    }

    /** With nothing said. */
    public static LockOptions options() {
        return NONE;
    }

    /** The longest wait; zero: try once. Null (the default): no limit. */
    public LockOptions wait(Duration wait) {
        return with("wait", wait == null ? null : checked("wait", wait, Duration.ZERO));
    }

    /** No option: it keeps {@code wait(5000)} from being Object.wait. Say {@code wait(Duration.ofSeconds(5))}. */
    @Deprecated
    public LockOptions wait(int milliseconds) {
        throw new IllegalArgumentException("wait takes a Duration: Duration.ofMillis(" + milliseconds + ")");
    }

    /** The lease that is asked for, and that each renewal sets. Default: 30 s. */
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

    /** Who asks, 1 to 256 bytes. Null (the default): {@code host:pid:uuid}, new for each acquisition. */
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

    /** At most so many hold the lock, 1 to 1,000,000; implies shared. Null (the default): no limit. */
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
     * How many replicas must confirm an acquisition or a renewal. Null (the default): 1 where Sentinels or the cluster know a
     * replica of the master, be it down, and otherwise those that are connected, of which one has to.
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

    /** These options, and for what they do not say, those. */
    public LockOptions or(LockOptions defaults) {
        Map<String, Object> merged = new HashMap<>(defaults.values);
        merged.putAll(values);
        return new LockOptions(Collections.unmodifiableMap(merged));
    }

    /** What was said of an option, or what holds if nothing was. */
    @SuppressWarnings("unchecked")
    public <T> T get(String option, T otherwise) {
        return values.containsKey(option) ? (T) values.get(option) : otherwise;
    }

    /** As {@code wait}, {@code lease} and so on have it; for others that have durations as options. */
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
