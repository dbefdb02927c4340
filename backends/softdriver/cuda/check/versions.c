/* Compiled against NVIDIA's cudaTypedefs.h, never run: the (name, version) pairs that cuGetProcAddress answers. */
#define __CUDA_API_VERSION_INTERNAL 1
#include <cudaTypedefs.h>

#define F(symbol, base, version, parameters) \
	_Static_assert(__builtin_types_compatible_p(PFN_##base##_v##version, CUresult(*) parameters), "PFN_" #base "_v" #version);
#include "../functions.def"
#undef F
#define A(base, version, symbol) _Static_assert(__builtin_types_compatible_p(PFN_##base##_v##version, __typeof__(&symbol)), "alias " #base);
#include "../aliases.def"
