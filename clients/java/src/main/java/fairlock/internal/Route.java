package fairlock.internal;

import io.lettuce.core.cluster.SlotHash;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Which node of a cluster has which slot, as far as it is known. */
public final class Route {
    private static final Pattern REDIRECT = Pattern.compile("(?:MOVED|ASK) (\\d+) (\\S*):(\\d+)");

    final boolean isCluster;
    private volatile Map<Integer, Address> slots = new ConcurrentHashMap<>();
    private final Set<Address> nodes = new LinkedHashSet<>();

    Route(boolean isCluster) {
        this.isCluster = isCluster;
    }

    static int slot(String name) {
        return SlotHash.getSlot(name.getBytes(StandardCharsets.UTF_8));
    }

    /** The node for a lock; null: not known, or no cluster. */
    Address address(String name) {
        return isCluster ? slots.get(slot(name)) : null;
    }

    synchronized void know(Iterable<Address> more) {
        more.forEach(nodes::add);
    }

    synchronized List<Address> nodes() {
        return List.copyOf(nodes);
    }

    void forget() {
        slots = new ConcurrentHashMap<>();
    }

    /** Takes the reply to CLUSTER SLOTS. */
    void learn(List<Object> ranges, Address asked) {
        Map<Integer, Address> learnt = new ConcurrentHashMap<>();
        for (Object range : ranges) {
            List<?> parts = (List<?>) range;
            for (int index = 2; index < parts.size(); index++) {
                List<?> member = (List<?>) parts.get(index);
                String host = (String) member.get(0);
                boolean isNamed = host != null && !host.isEmpty();
                Address address = new Address(isNamed ? host : asked.host(), number(member.get(1)));
                know(List.of(address));
                for (int slot = number(parts.get(0)); index == 2 && slot <= number(parts.get(1)); slot++) {
                    learnt.put(slot, address);
                }
            }
        }
        slots = learnt;
    }

    private static int number(Object reply) {
        return ((Number) reply).intValue();
    }

    /** The address in a MOVED, which is kept, or ASK; null: there is none. */
    Address redirect(Failure failure, Address asked) {
        Matcher found = REDIRECT.matcher(failure.getMessage());
        if (!isCluster || !found.lookingAt()) {
            return null;
        }
        String host = found.group(2).isEmpty() && asked != null ? asked.host() : found.group(2);
        Address address = new Address(host, Integer.parseInt(found.group(3)));
        if (failure.is("MOVED")) {
            slots.put(Integer.parseInt(found.group(1)), address);
        }
        return address;
    }
}
