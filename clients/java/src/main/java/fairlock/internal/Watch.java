package fairlock.internal;

import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * If masters can change, checks them once a second while locks are held or waited for. A holder then learns at once,
 * and not only at its next renewal, that the new master does not have its lock.
 */
final class Watch {
    private static final long EVERY = TimeUnit.SECONDS.toNanos(1);

    private final Core core;
    private boolean isOn;

    Watch(Core core) {
        this.core = core;
    }

    synchronized void begin() {
        if (!isOn && core.lines.route().hasGuides()) {
            isOn = true;
            core.clock.later(EVERY, this::look);
        }
    }

    private synchronized boolean isOver() {
        isOn = !core.isIdle() && !core.closing.isDone();
        return !isOn;
    }

    private void look() {
        if (isOver()) {
            return;
        }
        try {
            Waits.deaf(core.lines.read(), Waits.EVER);
            Set<Address> masters = core.lines.route().masters();
            core.lines.controls().keySet().stream().filter(each -> !masters.contains(each)).forEach(core.lines::leave);
            core.kept.forEach(this::check);
        } catch (Failure failure) {
            // No guide answers: only the servers' own ROLE is left.
        }
        core.lines.controls().forEach((address, line) -> Waits.within(line.call("ROLE"), core.settings.commandNanos())
                .whenComplete((role, error) -> {
                    Failure failure = error == null ? null : Failure.of(error);
                    boolean isMaster = failure == null ? role.get(0).equals("master") : !failure.isBroken();
                    if (!isMaster) {
                        core.lines.leave(address);
                    }
                }));
        core.clock.later(EVERY, this::look);
    }

    private void check(Keep keep) {
        Address master = core.lines.route().address(keep.name);
        if (keep.isDoubted() || (master != null && !keep.isAt(master))) {
            keep.doubt();
        }
    }
}
