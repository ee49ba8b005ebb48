/* Loaded by a server in the module's place, loads the module for it, and keeps one of the server's
 * functions from it: MODULE LOAD hiding.so MODULE FUNCTION ARGUMENT... With `RedisModule_Alloc`
 * followed by a minus, memory is aligned to 8 bytes instead.
 *
 * A context begins with the function by which the module asks for all others.
 */
#include <dlfcn.h>
#include <string.h>

typedef int (*get_api)(const char *name, void *place);
typedef int (*on_load)(void *ctx, void **argv, int argc);
typedef int (*on_unload)(void *ctx);
typedef const char *(*string_bytes)(const void *string, size_t *length);

static get_api ask;
static const char *hidden;
static void *module;
static void *(*server_alloc)(size_t bytes);
static void (*server_free)(void *memory);

static void *alloc_off(size_t bytes) { return (char *)server_alloc(bytes + 8) + 8; }

static void free_off(void *memory) { if (memory) server_free((char *)memory - 8); }

static int ask_or_hide(const char *name, void *place) {
    if (strcmp(hidden, "RedisModule_Alloc-") == 0) {
        if (strcmp(name, "RedisModule_Alloc") == 0) { *(void **)place = (void *)alloc_off; return 0; }
        if (strcmp(name, "RedisModule_Free") == 0) { *(void **)place = (void *)free_off; return 0; }
    }
    return strcmp(name, hidden) == 0 ? 1 : ask(name, place);
}

int RedisModule_OnLoad(void *ctx, void **argv, int argc) {
    string_bytes bytes;
    ask = *(get_api *)ctx;
    ask("RedisModule_StringPtrLen", &bytes);
    ask("RedisModule_Alloc", &server_alloc);
    ask("RedisModule_Free", &server_free);
    hidden = bytes(argv[1], NULL);
    module = dlopen(bytes(argv[0], NULL), RTLD_NOW | RTLD_LOCAL);
    if (!module) return 1;
    *(get_api *)ctx = ask_or_hide;
    int status = ((on_load)dlsym(module, "RedisModule_OnLoad"))(ctx, argv + 2, argc - 2);
    *(get_api *)ctx = ask;
    return status;
}

int RedisModule_OnUnload(void *ctx) { return ((on_unload)dlsym(module, "RedisModule_OnUnload"))(ctx); }
