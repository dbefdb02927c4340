#include "device.h"
#include <stdlib.h>

/* Two ways to queue work so that each command comes after the one before.
 *
 * The driver knows in-order lists (1.7 of the interface, and a loader that can wait for one): an immediate list with that flag.
 *
 * It does not: a queue, to which lists are given, one a submission. Neither the commands of a list nor the lists of a queue are ordered by
 * themselves, so each list begins with a barrier, which waits for all that the queue got before it. A list can be used again when its
 * fence says that the device is done with it. */

/* So many submissions may be under way before the next one waits for the oldest. */
enum { MOST_SLOTS = 256 };

tml_status tml_open_stream(tml_device *d, tml_stream *s) {
	const tml_api *api = d->api;
	tml_status status = TML_OK;
	ze_command_queue_desc_t desc = { .stype = TML_S_QUEUE_DESC, .ordinal = d->facts.group, .mode = TML_QUEUE_ASYNCHRONOUS };
	if (!s->last) s->last = &s->busy;
	if (!s->list && !s->queue && d->facts.in_order) {
		desc.flags = TML_QUEUE_IN_ORDER;
		status = TML_TRY(api, zeCommandListCreateImmediate, s->context, d->found.device, &desc, &s->list);
		bool unknown = status.code == TML_INVALID_ENUMERATION || status.code == TML_UNSUPPORTED_ENUMERATION || status.code == TML_UNSUPPORTED_FEATURE;
		if (status.code && !unknown) return status;
		if (status.code) d->facts.in_order = false;  /* it said a version that knows the flag, and does not: go on without */
	}
	if (!s->list && !s->queue) {
		desc.flags = 0;
		status = TML_TRY(api, zeCommandQueueCreate, s->context, d->found.device, &desc, &s->queue);
		if (status.code) return status;
	}
	ze_event_pool_desc_t pool = { .stype = TML_S_POOL_DESC, .flags = TML_POOL_HOST_VISIBLE, .count = TML_MARKS };
	return s->pool ? TML_OK : TML_TRY(api, zeEventPoolCreate, s->context, &pool, 1, &d->found.device, &s->pool);
}

/* Gives back what a slot has; the slot itself stays for the next try where that fails. */
static tml_status close_slot(const tml_api *api, tml_slot *slot) {
	tml_status status = slot->list ? TML_TRY(api, zeCommandListDestroy, slot->list) : TML_OK;
	if (status.code) return status;
	slot->list = NULL;
	status = slot->fence ? TML_TRY(api, zeFenceDestroy, slot->fence) : TML_OK;
	if (!status.code) slot->fence = NULL;
	return status;
}

tml_status tml_close_stream(tml_device *d, tml_stream *s) {
	const tml_api *api = d->api;
	tml_status status = TML_OK;
	s->first = s->set = 0;
	for (uint32_t i = 0; i < TML_MARKS; i++) {
		if (!s->marks[i].event) continue;
		if ((status = TML_TRY(api, zeEventDestroy, s->marks[i].event)).code) return status;
		s->marks[i] = (tml_mark){ 0 };
	}
	if (s->pool && (status = TML_TRY(api, zeEventPoolDestroy, s->pool)).code) return status;
	s->pool = NULL;
	if (s->last) *s->last = s->idle;  /* the queue is empty, so all are idle */
	s->idle = s->busy ? s->busy : s->idle;
	s->busy = NULL;
	s->last = &s->busy;
	while (s->idle) {
		tml_slot *slot = s->idle;
		if ((status = close_slot(api, slot)).code) return status;
		s->idle = slot->next;
		s->slots--;
		free(slot);
	}
	if (s->queue && (status = TML_TRY(api, zeCommandQueueDestroy, s->queue)).code) return status;
	s->queue = NULL;
	if (s->list && (status = TML_TRY(api, zeCommandListDestroy, s->list)).code) return status;
	s->list = NULL;
	return status;
}

/* ---- the queue's submissions; `appending` is held */

static void to_idle(tml_stream *s, tml_slot *slot) {
	slot->next = s->idle;
	s->idle = slot;
}

static void oldest_to_idle(tml_stream *s) {
	tml_slot *slot = s->busy;
	if (!(s->busy = slot->next)) s->last = &s->busy;
	to_idle(s, slot);
}

/* The first idle slot is ready to be appended to afterwards. */
static tml_status prepare_slot(tml_device *d, tml_stream *s) {
	const tml_api *api = d->api;
	tml_status status = TML_OK;
	while (s->busy && !(status = TML_TRY(api, zeFenceQueryStatus, s->busy->fence)).code) oldest_to_idle(s);
	if (status.code && status.code != TML_NOT_READY) return status;
	if (!s->idle && s->slots >= MOST_SLOTS) {
		if ((status = TML_TRY(api, zeFenceHostSynchronize, s->busy->fence, UINT64_MAX)).code) return status;
		oldest_to_idle(s);
	}
	if (!s->idle) {
		tml_slot *fresh = calloc(1, sizeof *fresh);
		if (!fresh) return (tml_status){ TML_OUT_OF_HOST_MEMORY, TML_CALL_zeCommandListCreate };
		s->slots++;
		to_idle(s, fresh);
	}
	tml_slot *slot = s->idle;
	ze_command_list_desc_t list = { .stype = TML_S_LIST_DESC, .commandQueueGroupOrdinal = d->facts.group };
	if (!slot->list && (status = TML_TRY(api, zeCommandListCreate, s->context, d->found.device, &list, &slot->list)).code) return status;
	ze_fence_desc_t fence = { .stype = TML_S_FENCE_DESC };
	if (!slot->fence && (status = TML_TRY(api, zeFenceCreate, s->queue, &fence, &slot->fence)).code) return status;
	if (slot->used) {
		status = TML_TRY(api, zeCommandListReset, slot->list);
		if (!status.code) status = TML_TRY(api, zeFenceReset, slot->fence);
		if (status.code) return status;
		slot->used = false;
	}
	return TML_TRY(api, zeCommandListAppendBarrier, slot->list, NULL, 0, NULL);
}

/* ---- work */

uint64_t tml_frees(tml_device *d) {
	pthread_mutex_lock(&d->lock);
	uint64_t newest = d->frees;
	pthread_mutex_unlock(&d->lock);
	return newest;
}

/* The stream in whose context memory lies. A host's context can be set while memory of our own is there, and left while there is memory in it. */
static tml_status find_stream(tml_device *d, uint64_t address, tml_stream **found) {
	*found = d->now;
	if (!address || !tml_two_contexts(d)) return TML_OK;
	bool here;
	tml_status status = tml_lies_in(d, d->now->context, address, &here);
	if (status.code || here) return status;
	if (d->now != &d->own) {
		*found = &d->own;
		return TML_OK;
	}
	pthread_mutex_lock(&d->appending);
	if (!d->guest) {  /* it was given back when the host's context was left */
		tml_stream *fresh = calloc(1, sizeof *fresh);
		if (!fresh) status = (tml_status){ TML_OUT_OF_HOST_MEMORY, TML_CALL_zeCommandListCreateImmediate };
		else fresh->context = tml_lent(d);
		d->guest = fresh;
	}
	if (!status.code) status = tml_open_stream(d, d->guest);
	*found = d->guest;
	pthread_mutex_unlock(&d->appending);
	return status;
}

tml_status tml_begin(tml_device *d, tml_work *work, uint64_t address) {
	*work = (tml_work){ .frees = tml_frees(d) };
	/* A host's list is never appended to: the specification forbids two threads to do that at once, and the host's do. What we queue comes
	 * after what the host has queued because that is waited for here, and before what it queues next because tml_end waits for it. */
	tml_status status = d->host ? tml_wait_for(d, d->host, UINT64_MAX) : TML_OK;
	if (!status.code) status = find_stream(d, address, &work->stream);
	/* The other context's stream is kept in step in the same way. */
	if (!status.code && work->stream != d->now) status = tml_wait(d, d->now);
	if (status.code) return status;
	tml_stream *s = work->stream;
	pthread_mutex_lock(&d->appending);
	if (s->list) {
		work->list = s->list;
		return TML_OK;
	}
	status = prepare_slot(d, s);
	if (status.code) {
		if (s->idle) s->idle->used = true;  /* its list may have a barrier already */
		pthread_mutex_unlock(&d->appending);
		return status;
	}
	work->slot = s->idle;
	s->idle = work->slot->next;
	work->list = work->slot->list;
	return TML_OK;
}

/* Ends the appending; the lock stays. */
static tml_status submit(tml_device *d, tml_work *work, tml_status status) {
	tml_slot *slot = work->slot;
	if (!slot) return status;  /* an immediate list has its commands already */
	tml_stream *s = work->stream;
	slot->used = true;
	if (!status.code) status = TML_TRY(d->api, zeCommandListClose, slot->list);
	if (!status.code) status = TML_TRY(d->api, zeCommandQueueExecuteCommandLists, s->queue, 1, &slot->list, slot->fence);
	if (status.code) {
		to_idle(s, slot);
		return status;
	}
	slot->next = NULL;
	*s->last = slot;
	s->last = &slot->next;
	return status;
}

tml_status tml_wait(tml_device *d, tml_stream *s) {
	return s->list ? TML_TRY(d->api, zeCommandListHostSynchronize, s->list, UINT64_MAX) : TML_TRY(d->api, zeCommandQueueSynchronize, s->queue, UINT64_MAX);
}

tml_status tml_wait_for(tml_device *d, ze_command_list_handle_t list, uint64_t timeout) {
	if (!d->api->zeCommandListHostSynchronize) return (tml_status){ TML_UNSUPPORTED_FEATURE, TML_CALL_zeCommandListHostSynchronize };
	return TML_TRY(d->api, zeCommandListHostSynchronize, list, timeout);
}

tml_status tml_end(tml_device *d, tml_work *work, tml_status status, bool wait) {
	status = submit(d, work, status);
	pthread_mutex_unlock(&d->appending);
	tml_stream *s = work->stream;
	if (!wait && !d->host && s == d->now) return status;
	tml_status waited = tml_wait(d, s);
	if (!waited.code) {
		pthread_mutex_lock(&d->lock);
		tml_passed(d, work->frees);  /* on the other stream, too: it was waited for before */
		pthread_mutex_unlock(&d->lock);
	} else if (!tml_lost(waited.code) && tml_wait(d, s).code) {
		/* A wait that failed may have left copies on their way to or from host memory that the caller is about to give away. */
		tml_wait(d, s);
	}
	return tml_first(status, waited);
}

tml_status tml_then(tml_device *d, tml_work *work) {
	return work->slot ? TML_TRY(d->api, zeCommandListAppendBarrier, work->list, NULL, 0, NULL) : TML_OK;
}

/* ---- marks */

void tml_passed(tml_device *d, uint64_t number) {
	if (number > d->done) d->done = number;
}

void tml_look_at_marks(tml_device *d) {
	tml_stream *s = d->now;
	for (; s->set; s->set--, s->first = (s->first + 1) % TML_MARKS) {
		tml_mark *mark = &s->marks[s->first];
		if (d->api->zeEventQueryStatus(mark->event)) return;  /* not yet; a failure is met again by who waits */
		tml_passed(d, mark->free);
	}
}

/* The place for the next mark; NULL: there is no room, or nothing to mark. */
static tml_mark *next_mark(tml_device *d, uint64_t *number) {
	tml_stream *s = d->now;
	pthread_mutex_lock(&d->lock);
	*number = d->frees;
	uint64_t covered = d->done;
	if (s->set && s->marks[(s->first + s->set - 1) % TML_MARKS].free > covered) covered = s->marks[(s->first + s->set - 1) % TML_MARKS].free;
	tml_mark *mark = s->set < TML_MARKS && *number > covered ? &s->marks[(s->first + s->set) % TML_MARKS] : NULL;
	pthread_mutex_unlock(&d->lock);
	return mark;
}

/* Without a mark, the frees wait for a later one, or for tml_synchronize, which reports what is wrong. */
static tml_status worth_telling(tml_status status) { return tml_lost(status.code) ? status : TML_OK; }

tml_status tml_set_mark(tml_device *d) {
	uint64_t number;
	if (d->host || !next_mark(d, &number)) return TML_OK;
	tml_work work;
	tml_status status = tml_begin(d, &work, 0);
	if (status.code) return worth_telling(status);
	tml_stream *s = work.stream;
	tml_mark *mark = next_mark(d, &number);  /* nobody else takes it while `appending` is held */
	if (mark && !mark->event) {
		ze_event_desc_t desc = { .stype = TML_S_EVENT_DESC, .index = (uint32_t)(mark - s->marks), .signal = TML_SCOPE_HOST, .wait = TML_SCOPE_HOST };
		status = TML_TRY(d->api, zeEventCreate, s->pool, &desc, &mark->event);
	} else if (mark && mark->used) {
		status = TML_TRY(d->api, zeEventHostReset, mark->event);
		mark->used = status.code;
	}
	if (mark && !status.code) {
		mark->used = true;
		status = TML_TRY(d->api, zeCommandListAppendBarrier, work.list, mark->event, 0, NULL);
	}
	status = submit(d, &work, status);
	if (mark && !status.code) {
		pthread_mutex_lock(&d->lock);
		mark->free = number;
		s->set++;
		pthread_mutex_unlock(&d->lock);
	}
	pthread_mutex_unlock(&d->appending);
	return worth_telling(status);
}
