/* Compiled against a vendor's hip_runtime_api.h and never run: every prototype of symbols.def and api.h, and every number of abi.h, is the header's. */
#define __HIP_PLATFORM_AMD__ 1
#define TMH_VENDOR_HEADER <hip/hip_runtime_api.h>
#include "../abi.h"

#define F(name, since, need, parameters) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), hipError_t (*) parameters), "prototype of " #name);
#include SYMBOLS
#undef F

_Static_assert(__builtin_types_compatible_p(__typeof__(&hipGetErrorName), const char *(*)(hipError_t)), "prototype of hipGetErrorName");

#define V(ours, vendor, value) _Static_assert((int)vendor == value, "value of " #vendor);
TMH_VALUES(V)
#undef V
