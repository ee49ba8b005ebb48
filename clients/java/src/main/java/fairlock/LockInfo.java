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
    /** From FAIRLOCK.INFO, or the script in its place. */
    static LockInfo of(List<?> reply) {
        Map<Object, Object> fields = new HashMap<>();
        for (int at = 0; at + 1 < reply.size(); at += 2) {
            fields.put(reply.get(at), reply.get(at + 1));
        }
        return new LockInfo((String) fields.get("owner"), (Long) fields.get("holds"), (Long) fields.get("lease"), (Long) fields.get("token"),
                fields.get("session").equals(1L), (Long) fields.get("waiting"), (Long) fields.get("holders"), (Long) fields.get("limit"));
    }
}
