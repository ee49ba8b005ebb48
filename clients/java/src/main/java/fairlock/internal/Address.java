package fairlock.internal;

/** Of a node of a cluster; there is none where there is one server, or the master that sentinels name. */
public record Address(String host, int port) {
    @Override
    public String toString() {
        return host + ":" + port;
    }
}
