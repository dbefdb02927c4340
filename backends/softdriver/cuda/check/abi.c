/* Compiled against NVIDIA's cuda.h, never run: every signature, value, size and offset that we declare. */
#define __CUDA_API_VERSION_INTERNAL 1 /* declares every version of every function under its exported name */
#include <cuda.h>
#include <stddef.h>

#ifndef FUNCTIONS /* a wrong table may be given, to see that the check finds it */
#define FUNCTIONS "../functions.def"
#endif

#define F(symbol, base, version, parameters) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), CUresult(*) parameters), "signature of " #symbol);
#include FUNCTIONS
#undef F
#define V(name, value) _Static_assert((int)(name) == (value), "value of " #name);
#define S(type, size) _Static_assert(sizeof(type) == (size), "size of " #type);
#define O(type, member, offset) _Static_assert(offsetof(type, member) == (offset), "offset of " #type "." #member);
#include "../values.def"
