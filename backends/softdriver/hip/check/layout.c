/* Compiled against our own types.h, never run: its sizes and offsets are the table's, which abi.c holds against AMD's. */
#include "../types.h"

#define V(name, value)
#define V6(name, value)
#define S(type, size) _Static_assert(sizeof(type) == (size), "size of " #type);
#define O(type, member, offset) _Static_assert(offsetof(type, member) == (offset), "offset of " #type "." #member);
#define O6(type, member, offset) O(type, member, offset)
#include "../values.def"
