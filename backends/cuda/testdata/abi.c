/* Compiled against a vendor's cuda.h and never run: every prototype of symbols.def and every number of abi.h is the header's. */
#define __CUDA_API_VERSION_INTERNAL 1 /* all names as they are exported, without the header's macros */
#define TMC_VENDOR_HEADER <cuda.h>
#include "../abi.h"

#define F(name, since, need, parameters) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&name), CUresult (*) parameters), "prototype of " #name);
#include SYMBOLS
#undef F

#define V(ours, vendor, value) _Static_assert((int)vendor == value, "value of " #vendor);
TMC_VALUES(V)
#undef V
