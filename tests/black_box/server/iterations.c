/* A module that counts the iterations of the server's event loop: ITERATIONS replies how many there were. */

#include <stdint.h>
#include <string.h>

typedef int (*Handler)(void *ctx, void **argv, int argc);
typedef struct {
    uint64_t id;
    uint64_t version;
} Event;
typedef void (*Listener)(void *ctx, Event event, uint64_t what, void *data);

static int (*get_api)(const char *name, void *place);
static int (*reply_number)(void *ctx, long long number);
static long long iterations;

static void listen(void *ctx, Event event, uint64_t what, void *data) {
    enum { AFTER_SLEEP = 1 };
    (void)ctx;
    (void)event;
    (void)data;
    iterations += what == AFTER_SLEEP;
}

static int tell(void *ctx, void **argv, int argc) {
    (void)argv;
    (void)argc;
    return reply_number(ctx, iterations);
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    const Event event_loop = {15, 1};
    (void)argv;
    (void)argc;
    /* The first word of a context is the function that finds all others. */
    memcpy(&get_api, ctx, sizeof get_api);
    void (*set_attributes)(void *ctx, const char *name, int version, int api);
    int (*create_command)(void *ctx, const char *name, Handler, const char *flags, int, int, int);
    int (*subscribe)(void *ctx, Event event, Listener);
    get_api("RedisModule_SetModuleAttribs", &set_attributes);
    get_api("RedisModule_CreateCommand", &create_command);
    get_api("RedisModule_SubscribeToServerEvent", &subscribe);
    get_api("RedisModule_ReplyWithLongLong", &reply_number);
    set_attributes(ctx, "iterations", 1, 1);
    return create_command(ctx, "iterations", tell, "", 0, 0, 0) || subscribe(ctx, event_loop, listen);
}
