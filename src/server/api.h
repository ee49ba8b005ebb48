/* What fairlock uses of the server's module API, and nothing else: the whole interface on one page.
 *
 * build.rs makes the Rust of it (see api.rs). Names, signatures and numbers are the server's. The crate
 * compiles only if this agrees with the declarations of redis-module, so neither can change unnoticed.
 * To use one more function: declare it here, in the list that it belongs to.
 *
 * Constants have the type in which they are used. Classes of key events are redis-module's NotifyEvent. */

#include <stddef.h>
#include <stdint.h>

/* ---- Opaque types of the server ---- */

typedef struct RedisModuleBlockedClient RedisModuleBlockedClient;
typedef struct RedisModuleCallReply RedisModuleCallReply;
typedef struct RedisModuleCommand RedisModuleCommand;
typedef struct RedisModuleCommandFilter RedisModuleCommandFilter;
typedef struct RedisModuleCommandFilterCtx RedisModuleCommandFilterCtx;
typedef struct RedisModuleCtx RedisModuleCtx;
typedef struct RedisModuleInfoCtx RedisModuleInfoCtx;
typedef struct RedisModuleKey RedisModuleKey;
typedef struct RedisModuleScanCursor RedisModuleScanCursor;
typedef struct RedisModuleServerInfoData RedisModuleServerInfoData;
typedef struct RedisModuleString RedisModuleString;
typedef struct RedisModuleUser RedisModuleUser;

typedef uint64_t RedisModuleTimerID;

/* ---- Constants ---- */

static const int REDISMODULE_OK = 0;

/* Circumstances of a call: GetContextFlags. */
static const int REDISMODULE_CTX_FLAGS_LUA = 1 << 0;
static const int REDISMODULE_CTX_FLAGS_MULTI = 1 << 1;
static const int REDISMODULE_CTX_FLAGS_SLAVE = 1 << 3;
static const int REDISMODULE_CTX_FLAGS_CLUSTER = 1 << 5;
static const int REDISMODULE_CTX_FLAGS_AOF = 1 << 6;
static const int REDISMODULE_CTX_FLAGS_OOM = 1 << 10;
static const int REDISMODULE_CTX_FLAGS_DENY_BLOCKING = 1 << 21;

/* SetModuleOptions, RegisterCommandFilter. */
static const int REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED = 1 << 1;
static const int REDISMODULE_CMDFILTER_NOSELF = 1 << 0;

/* Keys: OpenKey and StringDMA, KeyType, SetAbsExpire, ListPush, HashGet and HashSet. */
static const int REDISMODULE_READ = 1 << 0;
static const int REDISMODULE_WRITE = 1 << 1;
static const int REDISMODULE_OPEN_KEY_NOTOUCH = 1 << 16;
static const int REDISMODULE_OPEN_KEY_NOSTATS = 1 << 18;
static const int REDISMODULE_KEYTYPE_EMPTY = 0;
static const int REDISMODULE_KEYTYPE_STRING = 1;
static const int REDISMODULE_KEYTYPE_LIST = 2;
static const int REDISMODULE_KEYTYPE_HASH = 3;
static const int REDISMODULE_KEYTYPE_ZSET = 5;
static const long long REDISMODULE_NO_EXPIRE = -1;
static const int REDISMODULE_LIST_TAIL = 1;
static const int REDISMODULE_HASH_NONE = 0;

/* What a command does with a key. As small as they are, they fit wherever the server wants them. */
static const uint16_t REDISMODULE_CMD_KEY_RO = 1 << 0;
static const uint16_t REDISMODULE_CMD_KEY_RW = 1 << 1;
static const uint16_t REDISMODULE_CMD_KEY_RM = 1 << 3;
static const uint16_t REDISMODULE_CMD_KEY_ACCESS = 1 << 4;
static const uint16_t REDISMODULE_CMD_KEY_UPDATE = 1 << 5;
static const uint16_t REDISMODULE_CMD_KEY_DELETE = 1 << 7;
static const uint16_t REDISMODULE_CMD_KEY_NOT_KEY = 1 << 8;

/* A command's arguments. */
static const int REDISMODULE_CMD_ARG_NONE = 0;
static const int REDISMODULE_CMD_ARG_OPTIONAL = 1 << 0;
static const int REDISMODULE_CMD_ARG_MULTIPLE = 1 << 1;

/* Events of the server, and what happened in one. */
static const uint64_t REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED = 0;
static const uint64_t REDISMODULE_EVENT_FLUSHDB = 2;
static const uint64_t REDISMODULE_EVENT_CLIENT_CHANGE = 4;
static const uint64_t REDISMODULE_EVENT_MODULE_CHANGE = 9;
static const uint64_t REDISMODULE_EVENT_SWAPDB = 11;
static const uint64_t REDISMODULE_EVENT_EVENTLOOP = 15;
static const uint64_t REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA = 1;
static const uint64_t REDISMODULE_SUBEVENT_FLUSHDB_END = 1;
static const uint64_t REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED = 1;
static const uint64_t REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP = 0;
static const uint64_t REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP = 1;

static const uint64_t REDISMODULE_CLIENTINFO_VERSION = 1;

/* ---- What comes with events ---- */

typedef struct RedisModuleEvent {
    uint64_t id;
    uint64_t dataver;
} RedisModuleEvent;

typedef struct RedisModuleClientInfo {
    uint64_t version;
    uint64_t flags;
    uint64_t id;
    char addr[46];
    uint16_t port;
    uint16_t db;
} RedisModuleClientInfo;

typedef struct RedisModuleFlushInfo {
    uint64_t version;
    int32_t sync;
    int32_t dbnum;
} RedisModuleFlushInfo;

typedef struct RedisModuleSwapDbInfo {
    uint64_t version;
    int32_t dbnum_first;
    int32_t dbnum_second;
} RedisModuleSwapDbInfo;

/* ---- What COMMAND DOCS and COMMAND INFO are told: SetCommandInfo ---- */

typedef enum {
    REDISMODULE_ARG_TYPE_STRING = 0,
    REDISMODULE_ARG_TYPE_INTEGER = 1,
    REDISMODULE_ARG_TYPE_KEY = 3,
    REDISMODULE_ARG_TYPE_PURE_TOKEN = 6,
    REDISMODULE_ARG_TYPE_ONEOF = 7,
    REDISMODULE_ARG_TYPE_BLOCK = 8
} RedisModuleCommandArgType;

typedef struct RedisModuleCommandArg {
    const char *name;
    RedisModuleCommandArgType type;
    int key_spec_index;
    const char *token;
    const char *summary;
    const char *since;
    int flags;
    const char *deprecated_since;
    struct RedisModuleCommandArg *subargs;
    const char *display_text;
} RedisModuleCommandArg;

typedef enum { REDISMODULE_KSPEC_BS_INDEX = 2 } RedisModuleKeySpecBeginSearchType;

typedef enum {
    REDISMODULE_KSPEC_FK_RANGE = 2,
    REDISMODULE_KSPEC_FK_KEYNUM = 3
} RedisModuleKeySpecFindKeysType;

typedef struct {
    const char *notes;
    uint64_t flags;
    RedisModuleKeySpecBeginSearchType begin_search_type;
    union {
        struct { int pos; } index;
        struct { const char *keyword; int startfrom; } keyword;
    } bs;
    RedisModuleKeySpecFindKeysType find_keys_type;
    union {
        struct { int lastkey, keystep, limit; } range;
        struct { int keynumidx, firstkey, keystep; } keynum;
    } fk;
} RedisModuleCommandKeySpec;

typedef struct {
    const char *since;
    const char *changes;
} RedisModuleCommandHistoryEntry;

typedef struct {
    int version;
    size_t sizeof_historyentry;
    size_t sizeof_keyspec;
    size_t sizeof_arg;
} RedisModuleCommandInfoVersion;

typedef struct {
    const RedisModuleCommandInfoVersion *version;
    const char *summary;
    const char *complexity;
    const char *since;
    RedisModuleCommandHistoryEntry *history;
    const char *tips;
    int arity;
    RedisModuleCommandKeySpec *key_specs;
    RedisModuleCommandArg *args;
} RedisModuleCommandInfo;

/* ---- What the server calls, and on which thread: by the sources of Redis 8.6.3 and Valkey 9.1.2 ----
 *
 *   a command, a command filter                         as the server executes a command: its main thread
 *   a command that is to tell its keys (getkeys-api)    as it parses a command: I/O threads (Redis 8.4 and newer; Valkey in
 *                                                       a cluster), so no command has that flag
 *   reply and time-out of a blocked client, a           before it sleeps, by its timer, as it frees a client, which it takes
 *   disconnect, private data that is given back         back from an I/O thread first: main thread
 *   timers, one-shots, events, key events, scans        main thread
 *   options: get, set, apply                            main thread
 *   INFO                                                main thread; for the report of a crash the thread that crashed, on
 *                                                       which nothing is written (see info.rs)
 *
 * I/O threads free a command's arguments, but only those that nobody has retained, and write replies, which are copies.
 * Debug builds end the server if a callback comes on another thread (guard.rs). */

typedef int (*RedisModuleCmdFunc)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc);
typedef void (*RedisModuleFreeFunc)(RedisModuleCtx *ctx, void *privdata);
typedef void (*RedisModuleDisconnectFunc)(RedisModuleCtx *ctx, RedisModuleBlockedClient *client);
typedef void (*RedisModuleTimerProc)(RedisModuleCtx *ctx, void *data);
typedef void (*RedisModuleEventLoopOneShotFunc)(void *data);
typedef void (*RedisModuleCommandFilterFunc)(RedisModuleCommandFilterCtx *filter);
typedef void (*RedisModuleInfoFunc)(RedisModuleInfoCtx *ctx, int for_crash_report);
typedef int (*RedisModuleNotificationFunc)(RedisModuleCtx *ctx, int type, const char *event, RedisModuleString *key);
typedef void (*RedisModuleEventCallback)(RedisModuleCtx *ctx, RedisModuleEvent event, uint64_t subevent, void *data);
typedef void (*RedisModuleScanKeyCB)(RedisModuleKey *key, RedisModuleString *field, RedisModuleString *value, void *data);
typedef int (*RedisModuleConfigGetBoolFunc)(const char *name, void *data);
typedef int (*RedisModuleConfigSetBoolFunc)(const char *name, int value, void *data, RedisModuleString **error);
typedef int (*RedisModuleConfigGetEnumFunc)(const char *name, void *data);
typedef int (*RedisModuleConfigSetEnumFunc)(const char *name, int value, void *data, RedisModuleString **error);
typedef long long (*RedisModuleConfigGetNumericFunc)(const char *name, void *data);
typedef int (*RedisModuleConfigSetNumericFunc)(const char *name, long long value, void *data, RedisModuleString **error);
typedef int (*RedisModuleConfigApplyFunc)(RedisModuleCtx *ctx, void *data, RedisModuleString **error);

/* ---- Required functions. All are in Redis 7.0.0 and in every Valkey: where one is missing, the
 * module is not loaded. Each is asked for by its name after "RedisModule_". ---- */

struct Required {
    /* The module itself. */
    void *(*Alloc)(size_t bytes);
    void (*Free)(void *memory);
    void (*Log)(RedisModuleCtx *ctx, const char *level, const char *format, ...);
    void (*SetModuleOptions)(RedisModuleCtx *ctx, int options);
    int (*LoadConfigs)(RedisModuleCtx *ctx);
    int (*RegisterInfoFunc)(RedisModuleCtx *ctx, RedisModuleInfoFunc write);
    int (*InfoAddSection)(RedisModuleInfoCtx *ctx, const char *name);
    int (*InfoAddFieldULongLong)(RedisModuleInfoCtx *ctx, const char *field, unsigned long long value);

    /* Its commands. */
    int (*CreateCommand)(RedisModuleCtx *ctx, const char *name, RedisModuleCmdFunc run, const char *flags, int first_key, int last_key, int key_step);
    RedisModuleCommand *(*GetCommand)(RedisModuleCtx *ctx, const char *name);
    int (*SetCommandInfo)(RedisModuleCommand *command, const RedisModuleCommandInfo *info);
    RedisModuleCommandFilter *(*RegisterCommandFilter)(RedisModuleCtx *ctx, RedisModuleCommandFilterFunc look, int flags);
    RedisModuleString *(*CommandFilterArgGet)(RedisModuleCommandFilterCtx *filter, int position);
    int (*CommandFilterArgReplace)(RedisModuleCommandFilterCtx *filter, int position, RedisModuleString *argument);

    /* The call at hand. */
    int (*GetContextFlags)(RedisModuleCtx *ctx);
    unsigned long long (*GetClientId)(RedisModuleCtx *ctx);
    int (*GetSelectedDb)(RedisModuleCtx *ctx);
    int (*SelectDb)(RedisModuleCtx *ctx, int db);
    unsigned long long (*DbSize)(RedisModuleCtx *ctx);
    int (*AvoidReplicaTraffic)(void);

    /* The server's own INFO. */
    RedisModuleServerInfoData *(*GetServerInfo)(RedisModuleCtx *ctx, const char *section);
    const char *(*ServerInfoGetFieldC)(RedisModuleServerInfoData *info, const char *field);
    void (*FreeServerInfo)(RedisModuleCtx *ctx, RedisModuleServerInfoData *info);

    /* Replies. */
    int (*ReplyWithArray)(RedisModuleCtx *ctx, long length);
    int (*ReplyWithBool)(RedisModuleCtx *ctx, int value);
    int (*ReplyWithCallReply)(RedisModuleCtx *ctx, RedisModuleCallReply *reply);
    int (*ReplyWithError)(RedisModuleCtx *ctx, const char *text);
    int (*ReplyWithLongLong)(RedisModuleCtx *ctx, long long value);
    int (*ReplyWithMap)(RedisModuleCtx *ctx, long length);
    int (*ReplyWithNull)(RedisModuleCtx *ctx);
    int (*ReplyWithStringBuffer)(RedisModuleCtx *ctx, const char *bytes, size_t length);

    /* Strings. */
    RedisModuleString *(*CreateString)(RedisModuleCtx *ctx, const char *bytes, size_t length);
    void (*RetainString)(RedisModuleCtx *ctx, RedisModuleString *string);
    void (*FreeString)(RedisModuleCtx *ctx, RedisModuleString *string);
    const char *(*StringPtrLen)(const RedisModuleString *string, size_t *length);

    /* Keys. A handle is null where the key does not exist and was opened for reading, and empty where it was opened for
     * writing or was deleted since. Which functions may be given such a handle, by the sources of Redis 7.0.15, 8.0.2 and
     * 8.6.3 and of Valkey 8.1.1 and 9.1.2, which agree but for one:
     *
     *                                                   null        empty
     *   CloseKey, KeyType, ValueLength, ScanKey,        may         may
     *     GetDbIdFromModuleKey
     *   ListGet, ListPush, ListDelete, HashSet          refused     may
     *   GetAbsExpire                                    crashes     may, but crashes Redis 8.6
     *   all others that take a handle                   crash       may
     *
     * SetAbsExpire can move the value on Redis 8.6 and Valkey: other handles of the same key are not valid any more. */
    RedisModuleKey *(*OpenKey)(RedisModuleCtx *ctx, RedisModuleString *name, int mode);
    void (*CloseKey)(RedisModuleKey *key);
    int (*GetDbIdFromModuleKey)(RedisModuleKey *key);
    int (*KeyType)(RedisModuleKey *key);
    size_t (*ValueLength)(RedisModuleKey *key);
    int (*DeleteKey)(RedisModuleKey *key);
    long long (*GetAbsExpire)(RedisModuleKey *key);
    int (*SetAbsExpire)(RedisModuleKey *key, long long at);
    int (*StringSet)(RedisModuleKey *key, RedisModuleString *value);
    char *(*StringDMA)(RedisModuleKey *key, size_t *length, int mode);
    int (*HashGet)(RedisModuleKey *key, int flags, ...);
    int (*HashSet)(RedisModuleKey *key, int flags, ...);
    RedisModuleString *(*ListGet)(RedisModuleKey *key, long index);
    int (*ListPush)(RedisModuleKey *key, int where, RedisModuleString *element);
    int (*ListDelete)(RedisModuleKey *key, long index);
    int (*ZsetAdd)(RedisModuleKey *key, double score, RedisModuleString *member, int *flags);
    int (*ZsetRem)(RedisModuleKey *key, RedisModuleString *member, int *removed);
    int (*ZsetScore)(RedisModuleKey *key, RedisModuleString *member, double *score);
    int (*ZsetFirstInScoreRange)(RedisModuleKey *key, double low, double high, int without_low, int without_high);
    int (*ZsetRangeEndReached)(RedisModuleKey *key);
    RedisModuleString *(*ZsetRangeCurrentElement)(RedisModuleKey *key, double *score);
    int (*ZsetRangeNext)(RedisModuleKey *key);
    void (*ZsetRangeStop)(RedisModuleKey *key);

    /* Walking over the fields of a key. */
    RedisModuleScanCursor *(*ScanCursorCreate)(void);
    void (*ScanCursorDestroy)(RedisModuleScanCursor *cursor);
    int (*ScanKey)(RedisModuleKey *key, RedisModuleScanCursor *cursor, RedisModuleScanKeyCB tell, void *data);

    /* What others learn of a change. */
    int (*Replicate)(RedisModuleCtx *ctx, const char *command, const char *format, ...);
    int (*SignalModifiedKey)(RedisModuleCtx *ctx, RedisModuleString *name);
    int (*GetNotifyKeyspaceEvents)(void);
    int (*NotifyKeyspaceEvent)(RedisModuleCtx *ctx, int type, const char *event, RedisModuleString *key);

    /* Commands of the server's own. */
    RedisModuleCallReply *(*Call)(RedisModuleCtx *ctx, const char *command, const char *format, ...);
    int (*CallReplyType)(RedisModuleCallReply *reply);
    size_t (*CallReplyLength)(RedisModuleCallReply *reply);
    long long (*CallReplyInteger)(RedisModuleCallReply *reply);
    const char *(*CallReplyStringPtr)(RedisModuleCallReply *reply, size_t *length);
    RedisModuleCallReply *(*CallReplyArrayElement)(RedisModuleCallReply *reply, size_t index);
    void (*FreeCallReply)(RedisModuleCallReply *reply);
    int *(*GetCommandKeys)(RedisModuleCtx *ctx, RedisModuleString **argv, int argc, int *keys);

    /* Blocked clients. */
    RedisModuleBlockedClient *(*BlockClient)(RedisModuleCtx *ctx, RedisModuleCmdFunc reply, RedisModuleCmdFunc timed_out, RedisModuleFreeFunc free, long long timeout);
    void (*SetDisconnectCallback)(RedisModuleBlockedClient *client, RedisModuleDisconnectFunc disconnected);
    int (*UnblockClient)(RedisModuleBlockedClient *client, void *data);
    void *(*GetBlockedClientPrivateData)(RedisModuleCtx *ctx);

    /* The event loop, and what the server tells of. */
    RedisModuleTimerID (*CreateTimer)(RedisModuleCtx *ctx, long long milliseconds, RedisModuleTimerProc ring, void *data);
    int (*StopTimer)(RedisModuleCtx *ctx, RedisModuleTimerID timer, void **data);
    int (*EventLoopAddOneShot)(RedisModuleEventLoopOneShotFunc run, void *data);
    int (*SubscribeToServerEvent)(RedisModuleCtx *ctx, RedisModuleEvent event, RedisModuleEventCallback tell);
    int (*SubscribeToKeyspaceEvents)(RedisModuleCtx *ctx, int types, RedisModuleNotificationFunc tell);

    /* Connections and their users. */
    int (*GetClientInfoById)(void *info, uint64_t client);
    RedisModuleString *(*GetClientUserNameById)(RedisModuleCtx *ctx, uint64_t client);
    RedisModuleUser *(*GetModuleUserFromUserName)(RedisModuleString *name);
    void (*FreeModuleUser)(RedisModuleUser *user);
    /* Redis 8.6 also refuses a number of arguments that the command does not take (EINVAL); the others do not look. */
    int (*ACLCheckCommandPermissions)(RedisModuleUser *user, RedisModuleString **argv, int argc);
    int (*ACLCheckKeyPermissions)(RedisModuleUser *user, RedisModuleString *key, int flags);
    RedisModuleCtx *(*GetDetachedThreadSafeContext)(RedisModuleCtx *ctx);
    void (*FreeThreadSafeContext)(RedisModuleCtx *ctx);

    /* Options; redis-module calls these for us. */
    int (*RegisterBoolConfig)(RedisModuleCtx *ctx, const char *name, int value, unsigned int flags, RedisModuleConfigGetBoolFunc get, RedisModuleConfigSetBoolFunc set, RedisModuleConfigApplyFunc apply, void *data);
    int (*RegisterEnumConfig)(RedisModuleCtx *ctx, const char *name, int value, unsigned int flags, const char **names, const int *values, int number, RedisModuleConfigGetEnumFunc get, RedisModuleConfigSetEnumFunc set, RedisModuleConfigApplyFunc apply, void *data);
    int (*RegisterNumericConfig)(RedisModuleCtx *ctx, const char *name, long long value, unsigned int flags, long long min, long long max, RedisModuleConfigGetNumericFunc get, RedisModuleConfigSetNumericFunc set, RedisModuleConfigApplyFunc apply, void *data);
};

/* ---- Optional functions, with the version of Redis that brought them: where one is missing, the
 * caller says what is done instead. ---- */

struct Optional {
    /* 7.0.6 */
    RedisModuleString *(*GetModuleUserACLString)(RedisModuleUser *user);
    /* 7.2.0 */
    int (*GetModuleOptionsAll)(void);
    int (*SetCommandACLCategories)(RedisModuleCommand *command, const char *categories);
    unsigned long long (*CommandFilterGetClientId)(RedisModuleCommandFilterCtx *filter);
};
