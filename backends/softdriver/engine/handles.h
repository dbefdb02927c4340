/* The handles that clients hold. A handle is the address of the thing, and is believed only if it is in this set, so that a destroyed
 * or foreign handle is an error and not a crash. Needs the lock. */
#ifndef SOFT_HANDLES_H
#define SOFT_HANDLES_H

enum soft_kind {
	SOFT_KIND_STREAM = 1,
	SOFT_KIND_EVENT,
	SOFT_KIND_POOL,
	SOFT_KIND_GRAPH,
	SOFT_KIND_ABI, /* from here on: what only one vendor's ABI has */
};

void soft_handle_add(const void *handle, enum soft_kind kind);
void soft_handle_remove(const void *handle);
int soft_handle_is(const void *handle, enum soft_kind kind);

#endif
