package fairlock;

import java.time.Duration;

/**
 * The argument of a hook; fields that do not apply are null.
 *
 * @param token the fencing token
 * @param waited from the call to the acquisition
 * @param held from the acquisition to the release or the loss
 */
public record LockEvent(String name, String owner, Long token, Duration waited, Duration held, FairlockException.LockLost.Cause cause) {}
