#include "record.h"

#include <stdio.h>
#include <stdlib.h>

#include "calls.h"

static void *checked(void *p, size_t bytes)
{
	if (p)
		return p;
	fprintf(stderr, "%s: the host has no memory left for a record of %zu bytes\n", soft_abi.name, bytes);
	abort();
}

void *soft_records(size_t count, size_t size) { return checked(calloc(count, size), count * size); }

void *soft_records_grown(void *old, size_t count, size_t size) { return checked(realloc(old, count * size), count * size); }
