/* The library's functions as this backend calls them. */
#ifndef TMH_API_H
#define TMH_API_H
#include "abi.h"
#include "../ordered/vendor.h"

/* A pointer is NULL where the library does not have the function; those are never REQUIRED. */
typedef struct tmh_api {
#define F(name, since, need, parameters) hipError_t (*name) parameters;
#include "symbols.def"
#undef F
	const char *(*hipGetErrorName)(hipError_t);  /* the only one that gives no code; last in Go's list, too */
} tmh_api;

/* The same list as numbers: which call failed, and the index into Go's table. */
enum tmh_call {
#define F(name, since, need, parameters) TMH_CALL_##name,
#include "symbols.def"
#undef F
	TMH_CALL_hipGetErrorName,
	TMH_CALLS
};

enum tmh_need { TMH_NEED_REQUIRED, TMH_NEED_NAMES, TMH_NEED_UUID, TMH_NEED_CAPTURE, TMH_NEED_RELAXED, TMH_NEED_FIND, TMH_NEED_POOLS };

typedef struct { const char *name; int since; enum tmh_need need; } tmh_symbol;
extern const tmh_symbol tmh_symbols[TMH_CALLS];

extern const tmo_vendor tmh_vendor;

/* Calls a function of the library and gives its status.
 *
 * The runtime keeps the last error of each thread until somebody asks for it with hipGetLastError, and also keeps "not ready" in versions
 * before 7. The thread is the host framework's, which asks after its own launches and would take our failure for its own: so it is cleared
 * here. What the host had not asked for before our call is lost then; HIP has no way to put it back. A call that succeeds clears
 * it too in versions before 7, and leaves it alone from 7 on. */
#define TMH_TRY(api, function, ...) tmh_tried((api), (int)((const tmh_api *)(api))->function(__VA_ARGS__), TMH_CALL_##function)
static inline tmo_status tmh_tried(const void *api, int code, int call) {
	if (!code) return TMO_OK;
	(void)((const tmh_api *)api)->hipGetLastError();
	return (tmo_status){ code, call };
}

/* ---- library.c */
tmo_status tmh_init(const void *api, int *version);
tmo_status tmh_count(const void *api, int *count);
tmo_status tmh_ask(const void *api, int ordinal, tmo_facts *facts);
const char *tmh_error_name(const void *api, int code);
enum tmo_meaning tmh_meaning(int code);
#endif
