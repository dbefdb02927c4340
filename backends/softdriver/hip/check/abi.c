/* Compiled against AMD's hip_runtime_api.h of one version, never run: every signature, value, size and offset that we declare. */
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#include <hip/hip_version.h>
#include <stddef.h>

#ifndef FUNCTIONS /* a wrong table may be given, to see that the check finds it */
#define FUNCTIONS "../functions.def"
#endif
#ifndef VALUES
#define VALUES "../values.def"
#endif

/* A header may make a function's name a macro for another symbol; then that one is what programs ask the library for. */
#define TEXT(symbol) #symbol
#define DECLARED(symbol, name, result, parameters) \
	_Static_assert(!__builtin_strcmp(TEXT(symbol), name), "exported name of " name); \
	_Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), result(*) parameters), "signature of " name);
#define FROM_5(symbol, name, result, parameters) DECLARED(symbol, name, result, parameters)
#if HIP_VERSION_MAJOR >= 6
#define FROM_6(symbol, name, result, parameters) DECLARED(symbol, name, result, parameters)
#else
#define FROM_6(symbol, name, result, parameters)
#endif
#define F(symbol, since, result, parameters) FROM_##since(symbol, #symbol, result, parameters)
#include FUNCTIONS
#undef F

#define V(name, value) _Static_assert((int)(name) == (value), "value of " #name);
#define S(type, size) _Static_assert(sizeof(type) == (size), "size of " #type);
#define O(type, member, offset) _Static_assert(offsetof(type, member) == (offset), "offset of " #type "." #member);
#if HIP_VERSION_MAJOR >= 6
#define V6(name, value) V(name, value)
#define O6(type, member, offset) O(type, member, offset)
#else
#define V6(name, value)
#define O6(type, member, offset)
#endif
#include VALUES
