/* The library's functions as this backend calls them. */
#ifndef TMC_API_H
#define TMC_API_H
#include "abi.h"
#include "../ordered/vendor.h"

/* A pointer is NULL where the library does not have the function; those are never REQUIRED. */
typedef struct tmc_api {
#define F(name, since, need, parameters) CUresult (*name) parameters;
#include "symbols.def"
#undef F
} tmc_api;

/* The same list as numbers: which call failed, and the index into Go's table. */
enum tmc_call {
#define F(name, since, need, parameters) TMC_CALL_##name,
#include "symbols.def"
#undef F
	TMC_CALLS
};

enum tmc_need { TMC_NEED_REQUIRED, TMC_NEED_NAMES, TMC_NEED_MIG, TMC_NEED_CAPTURE, TMC_NEED_RELAXED, TMC_NEED_FIND, TMC_NEED_POOLS };

typedef struct { const char *name; int since; enum tmc_need need; } tmc_symbol;
extern const tmc_symbol tmc_symbols[TMC_CALLS];

extern const tmo_vendor tmc_vendor;

/* Calls a function of the library and gives its status. */
#define TMC_TRY(api, function, ...) tmc_tried((int)((const tmc_api *)(api))->function(__VA_ARGS__), TMC_CALL_##function)
static inline tmo_status tmc_tried(int code, int call) { return code ? (tmo_status){ code, call } : TMO_OK; }

/* ---- library.c */
tmo_status tmc_init(const void *api, int *version);
tmo_status tmc_count(const void *api, int *count);
tmo_status tmc_ask(const void *api, int ordinal, tmo_facts *facts);
const char *tmc_error_name(const void *api, int code);
enum tmo_meaning tmc_meaning(int code);
#endif
