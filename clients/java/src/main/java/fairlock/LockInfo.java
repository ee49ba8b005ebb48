package fairlock;

import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The state of a lock at the server. With several holders, owner to session describe one of them.
 *
 * @param owner the holder; null: it is free
 * @param holds the owner's hold count
 * @param lease milliseconds until it frees itself; -1: it never does
 * @param token the fencing token; null: it has none, because a script took it
 * @param session whether it is bound to a connection
 * @param waiting how many wait for it
 * @param holders how many hold it
 * @param limit how many may hold it, 1 for an exclusive holder; 0: any number, or it is free
 */
public record LockInfo(String owner, long holds, long lease, Long token, boolean session, long waiting, long holders, long limit) {
    private static Map<String, Object> pairs(List<Object> flat) {
        Map<String, Object> pairs = new HashMap<>();
        for (int at = 0; at + 1 < flat.size(); at += 2) {
            pairs.put((String) flat.get(at), flat.get(at + 1));
        }
        return pairs;
    }

    /** From FAIRLOCK.INFO. */
    static LockInfo of(List<Object> reply) {
        Map<String, Object> fields = pairs(reply);
        return new LockInfo((String) fields.get("owner"), (Long) fields.get("holds"), (Long) fields.get("lease"), (Long) fields.get("token"),
                fields.get("session").equals(1L), (Long) fields.get("waiting"), (Long) fields.get("holders"), (Long) fields.get("limit"));
    }

    /** From the lock's hash, PTTL and the length of its queue: a lock that a script has taken. */
    static LockInfo of(List<Object> hash, long lease, long waiting) {
        Map<String, Object> fields = pairs(hash);
        Object token = fields.remove("");
        String owner = fields.keySet().stream().findFirst().orElse(null);
        return owner == null ? new LockInfo(null, 0, 0, null, false, waiting, 0, 0)
                : new LockInfo(owner, Long.parseLong((String) fields.get(owner)), lease, token == null ? null : Long.valueOf((String) token), false, waiting,
                        fields.size(), fields.size() > 1 ? 0 : 1);
    }
}
