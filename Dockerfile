# fairlock in the official images of Redis and Valkey, built in a checkout of the sources:
#
#     docker build -t fairlock .
#     docker build -t fairlock --build-arg BASE=valkey/valkey:8.1 .
#     docker build -t fairlock-module --target module .      # only the module and the companion, for an init container
#
# The base has to be one of Debian: the module needs the GNU C library, 2.34 or newer (Debian 12 and 13 have it), and so
# does not load into an image whose tag ends in -alpine. Options of your own: /etc/fairlock/conf.d/*.conf, see
# packaging/image/server.conf and docs/kubernetes.md.
ARG BASE=redis:8.0-bookworm

# The toolchain of rust-toolchain.toml.
FROM rust:1.95.0-bookworm AS build
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN apt-get update \
    && apt-get install -y --no-install-recommends libclang-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /fairlock
COPY . .
RUN cargo build --release --locked \
    && cargo build --release --locked --package fairlock-cli \
    && install -d /out/usr/lib/redis/modules /out/usr/bin /out/etc/fairlock/conf.d \
    && strip -o /out/usr/lib/redis/modules/libfairlock.so target/release/libfairlock.so \
    && strip -o /out/usr/bin/fairlock target/release/fairlock \
    && scripts/package/options /usr/lib/redis/modules/libfairlock.so /etc/fairlock/fairlock.conf >/out/etc/fairlock/fairlock.conf \
    && install -m 644 packaging/image/server.conf /out/etc/fairlock/ \
    && chmod 755 /out/usr/lib/redis/modules/libfairlock.so /out/usr/bin/fairlock \
    && install -D -t /module/fairlock /out/usr/lib/redis/modules/libfairlock.so /out/usr/bin/fairlock packaging/image/copy \
    && install -m 644 examples/metrics/redis_exporter.lua /module/fairlock/ \
    && scripts/package/options /fairlock/libfairlock.so /fairlock/fairlock.conf >/module/fairlock/fairlock.conf \
    && rm -rf target

FROM debian:bookworm-slim AS module
COPY --from=build /module/ /
USER 65532:65532
ENV PATH=/fairlock:/usr/bin:/bin
CMD ["/fairlock/copy", "/shared"]

FROM ${BASE}
COPY --from=build /out/ /
# The server's own user in both images.
USER 999:999
# With -e an error counts as no answer: it may be loading its data.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
    CMD timeout 2 "$(command -v redis-cli || command -v valkey-cli)" -e PING
# Their entrypoints put the name of their server before a file of options.
CMD ["/etc/fairlock/server.conf"]
