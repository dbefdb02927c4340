/* Contexts: one a device, current by thread, as a stack. */
#ifndef SOFT_CONTEXT_H
#define SOFT_CONTEXT_H

#include "device.h"

int soft_context_known(const struct soft_context *context);
struct soft_context *soft_context_retain(struct soft_device *device);
enum soft_result soft_context_release(struct soft_device *device);
/* Empties the context whoever retains it, and releases nothing: waits for its work, frees its memory and pools, and makes its streams and events
 * invalid. The last release does the same. */
void soft_context_reset(struct soft_device *device);
void soft_context_state(struct soft_device *device, unsigned *flags, int *alive);
void soft_context_set_flags(struct soft_device *device, unsigned flags);

struct soft_context *soft_context_current(void); /* NULL: none */
enum soft_result soft_context_set(struct soft_context *context); /* replaces the top; NULL pops it */
enum soft_result soft_context_push(struct soft_context *context);
enum soft_result soft_context_pop(struct soft_context **context);
/* The device that the calling thread works with. */
enum soft_result soft_context_device(struct soft_device **device);

#endif
