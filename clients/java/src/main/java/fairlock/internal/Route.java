package fairlock.internal;

import io.lettuce.core.cluster.SlotHash;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Which server is the master of a lock, and whether that has replicas, as far as known: from Sentinels, from the nodes
 * of a cluster, or because there is one address.
 */
public final class Route {
    private static final Pattern REDIRECT = Pattern.compile("(?:MOVED|ASK) (\\d+) (\\S*):(\\d+)");
    /** Where there are no slots. */
    private static final int ALL = 0;
    private static final String NOBODY = "";

    final boolean isCluster;
    /** The Sentinels' name of the master, or null. */
    final String master;
    private volatile Map<Integer, Address> slots = new ConcurrentHashMap<>();
    /** The servers that know the masters; the last one that answered comes first. */
    private final List<Address> guides = new ArrayList<>();

    /** The cluster's ids of the nodes. */
    private final Map<Address, String> ids = new ConcurrentHashMap<>();
    /** The most replicas that a master was seen with: they count even when they are down. */
    private final Map<String, Integer> replicas = new ConcurrentHashMap<>();
    private final Map<String, String> masterOf = new HashMap<>();

    private Route(boolean isCluster, String master) {
        this.isCluster = isCluster;
        this.master = master;
    }

    static Route one(Address address) {
        Route route = new Route(false, null);
        route.slots.put(ALL, address);
        return route;
    }

    static Route sentinels(List<Address> sentinels, String master) {
        Route route = new Route(false, master);
        route.guides.addAll(sentinels);
        return route;
    }

    static Route cluster() {
        return new Route(true, null);
    }

    /** Whether masters change. */
    boolean hasGuides() {
        return isCluster || master != null;
    }

    private int slot(String name) {
        return isCluster ? SlotHash.getSlot(name.getBytes(StandardCharsets.UTF_8)) : ALL;
    }

    /** The master for a lock; null: not known. */
    Address address(String name) {
        return slots.get(slot(name));
    }

    Set<Address> masters() {
        return Set.copyOf(slots.values());
    }

    /** How many replicas have to confirm by default: 1 if the master has any. */
    int leastReplicas(Address address) {
        if (isCluster && !ids.containsKey(address)) {
            return 1; // A master that is known only from a MOVED.
        }
        return replicas.getOrDefault(ids.getOrDefault(address, NOBODY), 0) > 0 ? 1 : 0;
    }

    synchronized List<Address> guides() {
        return List.copyOf(guides);
    }

    synchronized void addGuide(Address address) {
        if (!guides.contains(address)) {
            guides.add(address);
        }
    }

    private synchronized void prefer(Address guide) {
        guides.remove(guide);
        guides.add(0, guide);
    }

    void forget() {
        if (hasGuides()) {
            slots = new ConcurrentHashMap<>();
        }
    }

    /** Asks one of the guides. */
    CompletableFuture<Void> ask(Backend.Line line, Address guide) {
        return isCluster
                ? line.call("CLUSTER", "SLOTS")
                        .thenCombine(line.call("CLUSTER", "NODES"), (ranges, nodes) -> learnSlots(ranges, nodes, guide))
                : line.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", master)
                        .thenCombine(line.call("SENTINEL", "MASTER", master), (at, more) -> learnMaster(at, more, guide));
    }

    private Void learnMaster(List<Object> at, List<Object> fields, Address guide) {
        int count = fields.indexOf("num-slaves");
        replicas.merge(NOBODY, count < 0 ? 0 : number(fields.get(count + 1)), Math::max);
        slots = new ConcurrentHashMap<>(Map.of(ALL, new Address((String) at.get(0), number(at.get(1)))));
        prefer(guide);
        return null;
    }

    private synchronized Void learnSlots(List<Object> ranges, List<Object> nodes, Address guide) {
        Map<Integer, Address> learnt = new ConcurrentHashMap<>();
        for (Object range : ranges) {
            List<?> parts = (List<?>) range;
            for (Object each : parts.subList(2, parts.size())) {
                List<?> member = (List<?>) each;
                Address address = address((String) member.get(0), number(member.get(1)), guide);
                addGuide(address);
                ids.put(address, (String) member.get(2));
            }
            List<?> owner = (List<?>) parts.get(2);
            Address first = address((String) owner.get(0), number(owner.get(1)), guide);
            for (int slot = number(parts.get(0)); slot <= number(parts.get(1)); slot++) {
                learnt.put(slot, first);
            }
        }
        learnReplicas((String) nodes.get(0));
        slots = learnt;
        prefer(guide);
        return null;
    }

    /** CLUSTER SLOTS hides replicas that are down. A promoted one counts with as many as its master had. */
    private void learnReplicas(String nodes) {
        Map<String, Integer> now = new HashMap<>();
        for (String node : nodes.split("\n")) {
            String[] words = node.split(" ");
            String id = words[0];
            if (!words[3].equals("-")) {
                now.merge(words[3], 1, Integer::sum);
                masterOf.put(id, words[3]);
            } else if (masterOf.containsKey(id)) {
                replicas.merge(id, replicas.getOrDefault(masterOf.remove(id), 0), Math::max);
            }
        }
        now.forEach((id, count) -> replicas.merge(id, count, Math::max));
    }

    private static Address address(String host, int port, Address asked) {
        return new Address(host == null || host.isEmpty() ? asked.host() : host, port);
    }

    private static int number(Object reply) {
        return Integer.parseInt(reply.toString());
    }

    /** The address in a MOVED, which is kept, or ASK; null: there is none. */
    Address redirect(Failure failure, Address asked) {
        Matcher found = REDIRECT.matcher(failure.getMessage());
        if (!isCluster || !found.lookingAt()) {
            return null;
        }
        Address address = address(found.group(2), Integer.parseInt(found.group(3)), asked);
        if (failure.is("MOVED")) {
            slots.put(Integer.parseInt(found.group(1)), address);
        }
        return address;
    }
}
