/* A module that runs a command when a key event of some name comes, for tests of what happens when one
 * module calls another in the middle of its work.
 *
 *   NOSY.ON event command [argument ...]   what to run at the next such event, once
 *   NOSY.SAID                              what it has replied, as the protocol has it
 *   NOSY.CALL command [argument ...]       runs a command at once
 */

#include <errno.h>
#include <string.h>

typedef int (*Handler)(void *ctx, void **argv, int argc);
typedef int (*Listener)(void *ctx, int type, const char *event, void *key);

static int (*get_api)(const char *name, void *place);
static int (*create_command)(void *ctx, const char *name, Handler, const char *flags, int, int, int);
static int (*subscribe)(void *ctx, int types, Listener);
static void *(*call)(void *ctx, const char *name, const char *format, ...);
static const char *(*call_proto)(void *reply, size_t *length);
static void (*free_reply)(void *reply);
static void *(*create_string)(void *ctx, const char *text, size_t length);
static void (*free_string)(void *ctx, void *string);
static const char *(*string_text)(const void *string, size_t *length);
static int (*reply_bytes)(void *ctx, const char *bytes, size_t length);
static int (*reply_call)(void *ctx, void *reply);
static int (*reply_error)(void *ctx, const char *text);

enum { WORDS = 16, ROOM = 1 << 16 };
static char awaited[64];
static void *words[WORDS];
static int count;
static char said[ROOM];
static size_t said_length;

/* What the server says, or why it says nothing. */
static void run(void *ctx) {
    const char *name = string_text(words[0], NULL);
    void *reply = call(ctx, name, "Ev", words + 1, (size_t)(count - 1));
    size_t length = 0;
    const char *text = reply ? call_proto(reply, &length) : strerror(errno);
    if (!reply) length = strlen(text);
    if (said_length + length < ROOM) {
        memcpy(said + said_length, text, length);
        said_length += length;
    }
    if (reply) free_reply(reply);
}

static int listen(void *ctx, int type, const char *event, void *key) {
    (void)type;
    (void)key;
    if (count > 0 && strcmp(event, awaited) == 0) {
        awaited[0] = 0;
        run(ctx);
    }
    return 0;
}

static int on(void *ctx, void **argv, int argc) {
    if (argc < 3 || argc - 2 > WORDS) return reply_error(ctx, "ERR event command [argument ...]");
    size_t length;
    const char *event = string_text(argv[1], &length);
    if (length >= sizeof awaited) return reply_error(ctx, "ERR the event's name is too long");
    memcpy(awaited, event, length);
    awaited[length] = 0;
    for (int i = 0; i < count; i++) free_string(NULL, words[i]);
    count = 0;
    said_length = 0;
    for (int i = 2; i < argc; i++) {
        const char *text = string_text(argv[i], &length);
        words[count++] = create_string(NULL, text, length);
    }
    return reply_bytes(ctx, "OK", 2);
}

static int tell(void *ctx, void **argv, int argc) {
    (void)argv;
    (void)argc;
    return reply_bytes(ctx, said, said_length);
}

static int call_now(void *ctx, void **argv, int argc) {
    if (argc < 2) return reply_error(ctx, "ERR command [argument ...]");
    void *reply = call(ctx, string_text(argv[1], NULL), "Ev", argv + 2, (size_t)(argc - 2));
    if (!reply) return reply_error(ctx, strerror(errno));
    reply_call(ctx, reply);
    free_reply(reply);
    return 0;
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    enum { EVERY_CLASS = (1 << 2) | (1 << 3) | (1 << 4) | (1 << 5) | (1 << 6) | (1 << 7) | (1 << 8) | (1 << 13) };
    (void)argv;
    (void)argc;
    /* The first word of a context is the function that finds all others. */
    memcpy(&get_api, ctx, sizeof get_api);
    void (*set_attributes)(void *ctx, const char *name, int version, int api);
    get_api("RedisModule_SetModuleAttribs", &set_attributes);
    get_api("RedisModule_CreateCommand", &create_command);
    get_api("RedisModule_SubscribeToKeyspaceEvents", &subscribe);
    get_api("RedisModule_Call", &call);
    get_api("RedisModule_CallReplyProto", &call_proto);
    get_api("RedisModule_FreeCallReply", &free_reply);
    get_api("RedisModule_CreateString", &create_string);
    get_api("RedisModule_FreeString", &free_string);
    get_api("RedisModule_StringPtrLen", &string_text);
    get_api("RedisModule_ReplyWithStringBuffer", &reply_bytes);
    get_api("RedisModule_ReplyWithCallReply", &reply_call);
    get_api("RedisModule_ReplyWithError", &reply_error);
    set_attributes(ctx, "nosy", 1, 1);
    return create_command(ctx, "nosy.on", on, "", 0, 0, 0) ||
           create_command(ctx, "nosy.said", tell, "", 0, 0, 0) ||
           create_command(ctx, "nosy.call", call_now, "", 0, 0, 0) ||
           subscribe(ctx, EVERY_CLASS, listen);
}
