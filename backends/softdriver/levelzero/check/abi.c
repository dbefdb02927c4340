/* Compiled against the vendor's headers, never run: every signature, value, size and offset that we declare, as far as those headers go. */
#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>
#include <stddef.h>

#ifndef FUNCTIONS /* a wrong table may be given, to see that the check finds it */
#define FUNCTIONS "../functions.def"
#endif
#ifndef VALUES
#define VALUES "../values.def"
#endif

#define CHECKED_1_0(assertion) assertion
#define CHECKED_1_1(assertion) assertion
#define CHECKED_1_2(assertion) assertion
#define CHECKED_1_3(assertion) assertion
#ifdef NEWEST
#define NEWER(assertion) assertion
#else
#define NEWER(assertion)
#endif
#define CHECKED_1_5(assertion) NEWER(assertion)
#define CHECKED_1_6(assertion) NEWER(assertion)
#define CHECKED_1_7(assertion) NEWER(assertion)
#define CHECKED_1_8(assertion) NEWER(assertion)
#define CHECKED_1_10(assertion) NEWER(assertion)
#define CHECKED_1_14(assertion) NEWER(assertion)
#define CHECKED_1_15(assertion) NEWER(assertion)
#define CHECKED_1_16(assertion) NEWER(assertion)

#define F(symbol, since, parameters) \
	CHECKED_##since(_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), ze_result_t(*) parameters), "signature of " #symbol);)
#ifndef NEWEST
/* Named in signatures that are not compared here, which the compiler must still be able to read. */
typedef int zes_init_flags_t, ze_init_driver_type_desc_t, zes_uuid_t;
#endif
#include FUNCTIONS
#undef F
#define V(since, name, value) CHECKED_##since(_Static_assert((int)(name) == (value), "value of " #name);)
#define S(since, type, size) CHECKED_##since(_Static_assert(sizeof(type) == (size), "size of " #type);)
#define O(since, type, member, offset) CHECKED_##since(_Static_assert(offsetof(type, member) == (offset), "offset of " #type "." #member);)
#include VALUES
