/* Compiled against our own types.h, never run: its sizes and offsets are the table's, which abi.c holds against the vendor's. */
#include "../types.h"

#define V(since, name, value)
#define S(since, type, size) _Static_assert(sizeof(type) == (size), "size of " #type);
#define O(since, type, member, offset) _Static_assert(offsetof(type, member) == (offset), "offset of " #type "." #member);
#include "../values.def"
