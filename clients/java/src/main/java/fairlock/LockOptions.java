package fairlock;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;

/**
 * Options of a Locks, which are the defaults of its locks, or of one lock. Immutable: each method returns a copy. A value that is out of range is an
 * IllegalArgumentException at once.
 */
public final class LockOptions {
    /** If the server does not have the module: locks are taken by scripts, without sessions, shared and limited locks; or NoModule is thrown. */
    public enum Module { AUTO, REQUIRED }

    private static final Duration LONGEST = Duration.ofMillis(4_503_599_627_370_496L); // the server's
    private static final Set<String> OF_LOCKS = Set.of("module", "retryTimeout", "commandTimeout", "releaseTimeout", "hooks", "ownerId");

    private final Map<String, Object> values;

    private LockOptions(Map<String, Object> values) {
        this.values = values;
    }

    /** Without any option. */
    public static LockOptions options() {
        return new LockOptions(Map.of());
    }

    /** The longest wait; zero: try once. Default: null, no limit. */
    public LockOptions wait(Duration wait) { return with("wait", wait == null ? null : checked("wait", wait, 0)); }

    /** The lease of the acquisition and of each renewal. Default: 30 s. */
    public LockOptions lease(Duration lease) { return with("lease", checked("lease", lease, 1)); }

    /** Whether the lease is renewed, at every third of it, while the thread lives that acquired the lock. Default: yes. */
    public LockOptions renew(boolean isOn) { return with("renew", isOn); }

    /** Whether the lock is freed when this process ends: it lives as long as a connection of its own. Default: no. */
    public LockOptions session(boolean isOn) { return with("session", isOn); }

    /** The owner, 1 to 256 bytes. Default: null, {@code host:pid:uuid}, which no other has. */
    public LockOptions owner(String owner) {
        int bytes = owner == null ? 1 : owner.getBytes(StandardCharsets.UTF_8).length;
        return with("owner", range("owner", bytes >= 1 && bytes <= 256 && !"*".equals(owner), "1 to 256 bytes, and not *", owner));
    }

    /** Whether the same thread holds the lock again at once, if both acquisitions say so. Default: no. */
    public LockOptions reentrant(boolean isOn) { return with("reentrant", isOn); }

    /** Whether the lock is held together with others that are shared. Default: no. */
    public LockOptions shared(boolean isOn) { return with("shared", isOn); }

    /** The most holders of the lock, 1 to 1,000,000; implies shared. Default: null, no limit. */
    public LockOptions limit(Integer limit) {
        return with("limit", range("limit", limit == null || limit >= 1 && limit <= 1_000_000, "1 to 1,000,000", limit));
    }

    /** How many replicas must confirm an acquisition or a renewal, 0 to 1,000,000. Default: null, one if the master has any. */
    public LockOptions minReplicas(Integer replicas) {
        return with("minReplicas", range("minReplicas", replicas == null || replicas >= 0 && replicas <= 1_000_000, "0 to 1,000,000", replicas));
    }

    /** The longest wait for them; zero: they are not asked. Default: 1 s. */
    public LockOptions syncTimeout(Duration timeout) { return with("syncTimeout", checked("syncTimeout", timeout, 0)); }

    /** How long a waiter that has died keeps its place; at the head, a turn. Default: 10 s. */
    public LockOptions patience(Duration patience) { return with("patience", checked("patience", patience, 1)); }

    /** Of Locks: whether locks may be taken by scripts. Default: AUTO. */
    public LockOptions module(Module module) { return with("module", range("module", module != null, "AUTO or REQUIRED", module)); }

    /** Of Locks: how long a server that cannot be reached is asked again. Default: 30 s. */
    public LockOptions retryTimeout(Duration timeout) { return with("retryTimeout", checked("retryTimeout", timeout, 0)); }

    /** Of Locks: the longest time for an answer that is given at once. Default: 5 s. */
    public LockOptions commandTimeout(Duration timeout) { return with("commandTimeout", checked("commandTimeout", timeout, 1)); }

    /** Of Locks: how long a release that fails is sent again. Default: 5 s. */
    public LockOptions releaseTimeout(Duration timeout) { return with("releaseTimeout", checked("releaseTimeout", timeout, 0)); }

    /** Of Locks: functions for tracing and metrics. Default: none. */
    public LockOptions hooks(Hooks hooks) { return with("hooks", range("hooks", hooks != null, "there", hooks)); }

    /** Of Locks: the first half of the owners of {@link Locks#get}: {@code redisson.getId()} shares them. Default: a random uuid. */
    public LockOptions ownerId(String id) { return with("ownerId", options().owner(range("ownerId", id != null, "there", id)).values.get("owner")); }

    /** Of several the later ones count; with defaults they are for one lock of a Locks. */
    static LockOptions merged(LockOptions defaults, LockOptions... options) {
        LockOptions all = defaults == null ? options() : defaults;
        for (LockOptions each : options) {
            for (var option : range("the options", each != null, "there", each).values.entrySet()) {
                boolean isHere = defaults == null || !OF_LOCKS.contains(option.getKey());
                range(option.getKey(), isHere, "an option of one lock: give it to Locks", option.getValue());
                all = all.with(option.getKey(), option.getValue());
            }
        }
        return all;
    }

    /** The option that only the module can do, or null. */
    String byModule() {
        return get("session", false) ? "session" : get("shared", false) ? "shared" : get("limit", null) != null ? "limit" : null;
    }

    @SuppressWarnings("unchecked")
    <T> T get(String option, T otherwise) {
        return values.containsKey(option) ? (T) values.get(option) : otherwise;
    }

    long nanos(String option, long seconds) {
        Duration duration = get(option, Duration.ofSeconds(seconds));
        return duration == null ? Time.EVER : Time.nanos(duration);
    }

    static <T> T range(String what, boolean isInside, String range, T value) {
        if (!isInside) {
            throw new IllegalArgumentException(what + " is not " + range + ": " + value);
        }
        return value;
    }

    static Duration checked(String option, Duration duration, long least) {
        boolean isInside = duration != null && duration.compareTo(Duration.ofMillis(least)) >= 0 && duration.compareTo(LONGEST) <= 0;
        return range(option, isInside, "a Duration of " + least + " to " + LONGEST.toMillis() + " ms", duration);
    }

    private LockOptions with(String option, Object value) {
        Map<String, Object> all = new HashMap<>(values);
        all.put(option, value);
        return new LockOptions(all);
    }
}
