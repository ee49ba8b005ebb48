package fairlock.internal;

import fairlock.LockOptions;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;

/** All options of one acquisition. */
record Options(Duration longest, Duration lease, boolean renew, boolean session, String owner, boolean reentrant,
        boolean shared, Integer limit, Confirm.Need need, Duration patience, LockOptions.Module module) {
    private static final String HOST = host();
    private static final long LONGEST = Long.MAX_VALUE / 4;

    static Options of(LockOptions said, LockOptions defaults) {
        if (said == null) {
            throw new IllegalArgumentException("the options are null: say LockOptions.options()");
        }
        LockOptions all = said.or(defaults);
        Confirm.Need need = new Confirm.Need(all.get("minReplicas", null), all.get("syncTimeout", Duration.ofSeconds(1)));
        return new Options(all.get("wait", null), all.get("lease", Duration.ofSeconds(30)), all.get("renew", true),
                all.get("session", false), all.get("owner", null), all.get("reentrant", false),
                all.get("shared", false), all.get("limit", null), need,
                all.get("patience", Duration.ofSeconds(30)), all.get("module", LockOptions.Module.AUTO));
    }

    Options waiting(Duration other) {
        return new Options(other, lease, renew, session, owner, reentrant, shared, limit, need, patience, module);
    }

    Options withoutSession() {
        return new Options(longest, lease, renew, false, owner, reentrant, shared, limit, need, patience, module);
    }

    boolean isPatient() {
        return longest == null || !longest.isZero();
    }

    /** The option that scripts do not have, or null. */
    String beyondScripts() {
        return session ? "session" : shared ? "shared" : limit != null ? "limit" : null;
    }

    /** The arguments of ACQUIRE in every ask, after name and owner. */
    List<Object> arguments(boolean isOnce) {
        List<Object> words = new ArrayList<>();
        if (shared || limit != null) {
            words.add("SHARED");
        }
        if (limit != null) {
            words.add(limit);
        }
        words.addAll(List.of("LEASE", ms(lease)));
        if (isOnce) {
            words.add("ONCE");
        }
        if (session) {
            words.add("SESSION");
        }
        return words;
    }

    /** For this process's clock; longer times are cut to one that no process lives to see. */
    static long nanos(Duration duration) {
        return duration.getSeconds() > LONGEST / 1_000_000_000 ? LONGEST : duration.toNanos();
    }

    /** Whole milliseconds, rounded up, for the server. */
    static long ms(Duration duration) {
        return Math.max(1, duration.plusNanos(999_999).toMillis());
    }

    /** As people say it. */
    static String said(Duration duration) {
        return said(nanos(duration));
    }

    static String said(long nanos) {
        long ms = nanos / 1_000_000;
        return ms % 1000 == 0 ? ms / 1000 + " s" : ms + " ms";
    }

    /** A unique owner that names the machine. */
    static String newOwner() {
        return HOST + ":" + ProcessHandle.current().pid() + ":" + UUID.randomUUID();
    }

    private static String host() {
        String name;
        try {
            name = InetAddress.getLocalHost().getHostName();
        } catch (UnknownHostException error) {
            name = "unknown";
        }
        String kept = name.replaceAll("[^A-Za-z0-9._-]", "-");
        return kept.substring(0, Math.min(200, kept.length()));
    }
}
