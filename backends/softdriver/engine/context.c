#include "context.h"

#include "event.h"
#include "handles.h"
#include "lock.h"
#include "pool.h"
#include "stream.h"

enum { DEPTH = 64 };
static __thread struct soft_context *stack[DEPTH];
static __thread int depth;

int soft_context_known(const struct soft_context *context)
{
	for (int i = 0; i < soft_device_count(); i++)
		if (context == &soft_device(i)->context)
			return 1;
	return 0;
}

static int alive(const struct soft_context *context) { return __atomic_load_n(&context->alive, __ATOMIC_ACQUIRE); }

static void drop_block(struct soft_block *block)
{
	if (block->state == SOFT_BLOCK_LIVE)
		soft_block_drop(block);
}

/* Ends all that is in the context. Who retains it may go on with it if it stays alive. */
static void empty_locked(struct soft_device *device)
{
	soft_stream_wait_all(device, 1);
	soft_events_reset(device);
	soft_pools_reset(device);
	soft_blocks_visit(device, drop_block);
	soft_device_give_back(device);
	/* From the start each time: closing a stream can be the end of others. */
	for (struct soft_stream *stream = device->streams; stream;) {
		int close = !stream->legacy && !stream->closed;
		if (close)
			soft_stream_close(stream);
		stream = close ? device->streams : stream->next;
	}
}

struct soft_context *soft_context_retain(struct soft_device *device)
{
	soft_lock();
	device->context.references++;
	__atomic_store_n(&device->context.alive, 1, __ATOMIC_RELEASE);
	soft_unlock();
	return &device->context;
}

enum soft_result soft_context_release(struct soft_device *device)
{
	soft_lock();
	enum soft_result result = device->context.references ? SOFT_OK : SOFT_INVALID_CONTEXT;
	if (!result && !--device->context.references) {
		__atomic_store_n(&device->context.alive, 0, __ATOMIC_RELEASE);
		empty_locked(device);
	}
	soft_unlock();
	return result;
}

void soft_context_reset(struct soft_device *device)
{
	soft_lock();
	empty_locked(device);
	soft_unlock();
}

void soft_context_state(struct soft_device *device, unsigned *flags, int *is_alive)
{
	soft_lock();
	*flags = device->context.flags;
	*is_alive = device->context.alive;
	soft_unlock();
}

void soft_context_set_flags(struct soft_device *device, unsigned flags)
{
	soft_lock();
	device->context.flags = flags;
	soft_unlock();
}

struct soft_context *soft_context_current(void) { return depth ? stack[depth - 1] : NULL; }

enum soft_result soft_context_set(struct soft_context *context)
{
	if (context && (!soft_context_known(context) || !alive(context)))
		return SOFT_INVALID_CONTEXT;
	if (!context)
		depth -= depth > 0;
	else
		stack[depth ? depth - 1 : depth++] = context;
	return SOFT_OK;
}

enum soft_result soft_context_push(struct soft_context *context)
{
	if (!soft_context_known(context) || !alive(context))
		return SOFT_INVALID_CONTEXT;
	if (depth == DEPTH)
		return SOFT_INVALID_VALUE;
	stack[depth++] = context;
	return SOFT_OK;
}

enum soft_result soft_context_pop(struct soft_context **context)
{
	if (!depth)
		return SOFT_INVALID_CONTEXT;
	depth--;
	if (context)
		*context = stack[depth];
	return SOFT_OK;
}

enum soft_result soft_context_device(struct soft_device **device)
{
	struct soft_context *context = soft_context_current();
	if (!context)
		return SOFT_INVALID_CONTEXT;
	if (!alive(context))
		return SOFT_CONTEXT_DESTROYED;
	*device = context->device;
	return SOFT_OK;
}
