package fairlock;

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
public record LockInfo(String owner, long holds, long lease, Long token, boolean session, long waiting, long holders,
        long limit) {}
