package fairlock.internal;

/** A server's address; port 0: the host is the path of its socket. */
public record Address(String host, int port) {
    @Override
    public String toString() {
        return port == 0 ? host : host + ":" + port;
    }
}
