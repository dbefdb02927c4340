/* Compiled against a vendor's ze_api.h and zes_api.h and never run: every prototype of symbols.def and every number of abi.h that the
 * header's version has is the header's. TML_VENDOR_HEADER includes the two, TML_HEADER_VERSION is their version. */
#include "../abi.h"

#define CHECK(name, parameters) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), ze_result_t (*) parameters), "prototype of " #name);
#define SKIP(name, parameters)
#define CHECK_1000 CHECK
#define CHECK_1003 CHECK
#if TML_HEADER_VERSION >= 1005
#define CHECK_1005 CHECK
#else
#define CHECK_1005 SKIP
#endif
#if TML_HEADER_VERSION >= 1006
#define CHECK_1006 CHECK
#else
#define CHECK_1006 SKIP
#endif
#if TML_HEADER_VERSION >= 1008
#define CHECK_1008 CHECK
#else
#define CHECK_1008 SKIP
#endif
#if TML_HEADER_VERSION >= 1010
#define CHECK_1010 CHECK
#else
#define CHECK_1010 SKIP
#endif
#define F(name, since, need, parameters) CHECK_##since(name, parameters)
#include SYMBOLS
#undef F

/* A number that the header is too old for must not be looked up in it. */
#define EQUAL(vendor, value) _Static_assert((int)vendor == value, "value of " #vendor);
#define UNKNOWN(vendor, value)
#define EQUAL_1000 EQUAL
#define EQUAL_1001 EQUAL
#define EQUAL_1003 EQUAL
#define EQUAL_1004 EQUAL
#if TML_HEADER_VERSION >= 1007
#define EQUAL_1007 EQUAL
#else
#define EQUAL_1007 UNKNOWN
#endif
#if TML_HEADER_VERSION >= 1010
#define EQUAL_1010 EQUAL
#else
#define EQUAL_1010 UNKNOWN
#endif
#if TML_HEADER_VERSION >= 1013
#define EQUAL_1013 EQUAL
#else
#define EQUAL_1013 UNKNOWN
#endif
#if TML_HEADER_VERSION >= 1015
#define EQUAL_1015 EQUAL
#else
#define EQUAL_1015 UNKNOWN
#endif
#if TML_HEADER_VERSION >= 1017
#define EQUAL_1017 EQUAL
#else
#define EQUAL_1017 UNKNOWN
#endif
#define V(ours, vendor, value, since) EQUAL_##since(vendor, value)
TML_VALUES(V)
#undef V
