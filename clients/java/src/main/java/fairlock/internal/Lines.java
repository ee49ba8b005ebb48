package fairlock.internal;

import fairlock.ClosedException;
import fairlock.internal.Backend.Ears;
import fairlock.internal.Backend.Line;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;

/**
 * The connections of a Locks. Only masters are asked: by the Sentinels' answer when the connection is made, and by the
 * server's own ROLE.
 */
final class Lines {
    /** Connections that all threads share, except the last kind. The first two never wait: RENEW and WAIT have their own. */
    enum Kind { ASK, CONTROL, CONFIRM, GUIDE, OWN }

    private record Key(Kind kind, Address address) {}

    private final Backend backend;
    private final long commandNanos;
    /** Is called with a server when its connection for releases has ended. */
    private final Consumer<Address> onLost;
    private final Map<Key, CompletableFuture<Line>> shared = new HashMap<>();
    private final Map<Address, CompletableFuture<Ears>> ears = new HashMap<>();
    private final Map<Address, Confirm> confirms = new ConcurrentHashMap<>();
    /** Whether the servers have the module. */
    private final Map<Address, Boolean> natives = new ConcurrentHashMap<>();
    /** Servers whose module the user may not use. */
    private final Map<Address, Failure> denials = new ConcurrentHashMap<>();
    private final boolean isModuleRequired;
    private final Consumer<Address> onDenied;
    /** The last answer of any server; null: none has answered. */
    private volatile Boolean isNative;
    /** Those of one caller each. */
    private final Map<Line, Address> own = new HashMap<>();
    private CompletableFuture<Void> reading;
    private boolean isClosed;

    Lines(Backend backend, long commandNanos, boolean isModuleRequired, Consumer<Address> onLost, Consumer<Address> onDenied) {
        this.isModuleRequired = isModuleRequired;
        this.onDenied = onDenied;
        this.backend = backend;
        this.commandNanos = commandNanos;
        this.onLost = onLost;
    }

    // ------------------------------------------------------------------------------- routes

    Route route() {
        return backend.route();
    }

    /** The master for a lock. */
    Address address(String name, boolean isDeaf) throws Failure, InterruptedException {
        if (route().address(name) == null) {
            Waits.on(read(), Waits.EVER, isDeaf);
        }
        Address address = route().address(name);
        if (address == null) {
            throw Failure.refusal("CLUSTERDOWN no node has the slot");
        }
        return address;
    }

    /** Asks the Sentinels, or the nodes of the cluster, until one has answered; concurrent callers share the answer. */
    synchronized CompletableFuture<Void> read() {
        if (reading == null || reading.isDone()) {
            reading = Waits.within(backend.ready(), commandNanos).thenCompose(nothing -> readFromOne());
        }
        return reading;
    }

    private CompletableFuture<Void> readFromOne() {
        CompletableFuture<Void> read = CompletableFuture.failedFuture(Failure.broken("no server is known", null));
        for (Address guide : route().guides()) {
            read = read.exceptionallyCompose(error -> readFrom(guide));
        }
        return read;
    }

    private CompletableFuture<Void> readFrom(Address guide) {
        CompletableFuture<Line> line = line(Kind.GUIDE, guide);
        CompletableFuture<Void> answer = line.thenCompose(each -> route().ask(each, guide));
        return Waits.within(answer, commandNanos).exceptionallyCompose(error -> {
            Failure failure = Failure.of(error).at(guide);
            if (failure.isBroken()) {
                distrust(Kind.GUIDE, guide, line);
            }
            return CompletableFuture.failedFuture(failure);
        });
    }

    // ------------------------------------------------------------------------------- shared

    /** The shared connection of this kind; opened if there is none. */
    CompletableFuture<Line> line(Kind kind, Address address) {
        Key key = new Key(kind, address);
        CompletableFuture<Line> made;
        synchronized (this) {
            checkOpen();
            CompletableFuture<Line> there = shared.get(key);
            if (there != null) {
                return there;
            }
            made = new CompletableFuture<>();
            shared.put(key, made);
        }
        connect(kind, address).whenComplete((line, error) -> {
            if (error != null) {
                forget(shared, key, made);
                made.completeExceptionally(error);
                return;
            }
            line.onClosed(() -> {
                forget(shared, key, made);
                if (kind == Kind.CONTROL) {
                    onLost.accept(address);
                }
            });
            made.complete(line);
            closeIfLate(line::close);
        });
        return made;
    }

    /** A connection that opens too late is closed again. */
    private CompletableFuture<Line> connect(Kind kind, Address address) {
        CompletableFuture<Line> opened = kind == Kind.GUIDE
                ? backend.open(address)
                : named(address).thenCompose(nothing -> backend.open(address))
                        .thenCompose(line -> ofMaster(kind, address, line));
        return Waits.within(opened, commandNanos).whenComplete((line, error) -> {
            if (error != null) {
                opened.thenAccept(Line::close);
            }
        });
    }

    /** Whether the Sentinels name the server now; in a cluster it says so itself. */
    private CompletableFuture<Void> named(Address address) {
        if (route().master == null) {
            return CompletableFuture.completedFuture(null);
        }
        return read().thenCompose(nothing -> address.equals(route().address(""))
                ? CompletableFuture.completedFuture(null)
                : CompletableFuture.failedFuture(Failure.refusal("READONLY the Sentinels name another master")));
    }

    private CompletableFuture<Line> ofMaster(Kind kind, Address address, Line line) {
        boolean isOwn = kind == Kind.OWN; // Made where the module was seen.
        return MasterLine.of(line, isOwn, new Server(address)).thenApply(master -> isOwn ? master : learn(address, master));
    }

    /** What connections find out about a server. */
    private final class Server implements MasterLine.Server {
        private final Address address;

        Server(Address address) {
            this.address = address;
        }

        @Override
        public boolean isUnderSentinel() {
            return route().master != null;
        }

        @Override
        public void unloaded() {
            natives.remove(address);
            leave(address);
        }

        @Override
        public Failure denied() {
            return denials.get(address);
        }

        @Override
        public boolean deny(Failure failure) {
            if (isModuleRequired) {
                return false;
            }
            if (denials.putIfAbsent(address, failure) == null) {
                onDenied.accept(address);
            }
            natives.put(address, false);
            isNative = false;
            return true;
        }
    }

    /** How the user was denied the server's module, or null. */
    Failure denied(Address address) {
        return denials.get(address);
    }

    /** Whether a new connection finds the module, which may have been loaded since. */
    boolean findsModule(Address address, boolean isDeaf) throws Failure, InterruptedException {
        Line line = take(Kind.ASK, address, isDeaf);
        drop(line);
        return line.isNative();
    }

    /** Where the module has come or gone, older connections make room for new ones. */
    private Line learn(Address address, Line line) {
        Boolean before = natives.put(address, line.isNative());
        isNative = line.isNative();
        if (before != null && before != line.isNative()) {
            leave(address);
        }
        return line;
    }

    /** Whether the server has the module; null: none has answered yet. */
    Boolean isNative() {
        return isNative;
    }

    /** The connection for wake-ups; opened if there is none. */
    CompletableFuture<Ears> ears(Address address) {
        CompletableFuture<Ears> made;
        synchronized (this) {
            CompletableFuture<Ears> there = ears.get(address);
            if (there != null) {
                return there;
            }
            made = new CompletableFuture<>();
            ears.put(address, made);
        }
        backend.listen(address).whenComplete((one, error) -> {
            if (error != null) {
                forget(ears, address, made);
                made.completeExceptionally(error);
                return;
            }
            made.complete(one);
            closeIfLate(one::close);
        });
        return made;
    }

    /** The confirmation for this server. */
    Confirm confirm(Address address) {
        return confirms.computeIfAbsent(address, any -> new Confirm(this, address, commandNanos));
    }

    private void closeIfLate(Runnable close) {
        synchronized (this) {
            if (!isClosed) {
                return;
            }
        }
        close.run();
    }

    private synchronized <K, V> void forget(Map<K, V> map, K key, V value) {
        map.remove(key, value);
    }

    /** After a failure shared connections may lead to a former master. Closing them wakes all that wait on them. */
    void distrust(Kind kind, Address address, CompletableFuture<Line> line) {
        CompletableFuture<Ears> deaf = null;
        synchronized (this) {
            if (!shared.remove(new Key(kind, address), line)) {
                return; // Another has done so.
            }
            deaf = kind == Kind.ASK ? ears.remove(address) : null;
        }
        line.thenAccept(Line::close);
        if (deaf != null) {
            deaf.thenAccept(Ears::close);
        }
        if (kind != Kind.GUIDE) {
            route().forget();
        }
    }

    /** A subscription that has ended makes room for another. */
    void distrust(Address address, CompletableFuture<Ears> one) {
        forget(ears, address, one);
        one.thenAccept(Ears::close);
    }

    /** A command on a shared connection, once. */
    List<Object> call(Kind kind, Address address, boolean isDeaf, Object... words) throws Failure, InterruptedException {
        CompletableFuture<Line> line = line(kind, address);
        try {
            return Waits.on(line.thenCompose(each -> each.call(words)), commandNanos, isDeaf);
        } catch (Failure failure) {
            if (failure.isBroken() || failure.is("READONLY")) {
                distrust(kind, address, line);
            } else if (failure.is("CLUSTERDOWN")) {
                route().forget();
            }
            throw failure;
        }
    }

    // ---------------------------------------------------------------------------------- own

    /** A connection for one caller, until it is dropped. */
    Line take(Address address, boolean isDeaf) throws Failure, InterruptedException {
        return take(Kind.OWN, address, isDeaf);
    }

    private Line take(Kind kind, Address address, boolean isDeaf) throws Failure, InterruptedException {
        checkOpen();
        CompletableFuture<Line> opening = connect(kind, address);
        try {
            Line line = Waits.on(opening, Waits.EVER, isDeaf);
            synchronized (this) {
                own.put(line, address);
                checkOpen();
            }
            return line;
        } catch (Failure | InterruptedException | ClosedException error) {
            opening.thenAccept(this::drop);
            throw error;
        }
    }

    void drop(Line line) {
        synchronized (this) {
            own.remove(line);
        }
        line.close();
    }

    /** A command at the node that an ASK has named, on a connection where nothing comes between ASKING and it. */
    List<Object> once(Address address, Object... words) throws Failure, InterruptedException {
        Line line = take(Kind.ASK, address, true);
        try {
            return Waits.on(line.asking(words), commandNanos, true);
        } finally {
            drop(line);
        }
    }

    // ---------------------------------------------------------------------------------- end

    /** The connections that releases use, of those servers to which there is one. */
    synchronized Map<Address, Line> controls() {
        Map<Address, Line> all = new HashMap<>();
        shared.forEach((key, line) -> {
            if (key.kind == Kind.CONTROL && line.isDone() && !line.isCompletedExceptionally()) {
                all.put(key.address, line.join());
            }
        });
        return all;
    }

    /** The server is no longer a master: callers that wait there ask elsewhere. */
    void leave(Address address) {
        List<Runnable> ends = new ArrayList<>();
        synchronized (this) {
            shared.forEach((key, line) -> {
                if (key.kind != Kind.GUIDE && key.address.equals(address)) {
                    ends.add(() -> distrust(key.kind, address, line));
                }
            });
            own.forEach((line, at) -> {
                if (at.equals(address)) {
                    ends.add(line::close);
                }
            });
        }
        ends.forEach(Runnable::run);
    }

    /** Ends blocked waits. */
    void endOwn() {
        List<Line> all;
        synchronized (this) {
            all = new ArrayList<>(own.keySet());
        }
        all.forEach(Line::close);
    }

    void close() {
        List<Runnable> ends = new ArrayList<>();
        synchronized (this) {
            isClosed = true;
            shared.values().forEach(line -> ends.add(() -> line.thenAccept(Line::close)));
            ears.values().forEach(one -> ends.add(() -> one.thenAccept(Ears::close)));
        }
        ends.forEach(Runnable::run);
        endOwn();
    }

    synchronized boolean isClosed() {
        return isClosed;
    }

    synchronized void checkOpen() {
        if (isClosed) {
            throw new ClosedException("Locks is closed", null, null);
        }
    }
}
