#include "device.h"
#include <stdlib.h>

tml_device *tml_new(const tml_api *api, tml_found found, const tml_facts *facts, bool sysman_allowed) {
	tml_device *d = calloc(1, sizeof *d);
	if (!d) return NULL;
	d->api = api;
	d->found = found;
	d->facts = *facts;
	d->sysman_allowed = sysman_allowed;
	d->last = &d->first;
	pthread_mutex_init(&d->sysman.lock, NULL);
	pthread_mutex_init(&d->appending, NULL);
	pthread_mutex_init(&d->lock, NULL);
	return d;
}

void tml_delete(tml_device *d) {
	pthread_mutex_destroy(&d->sysman.lock);
	pthread_mutex_destroy(&d->appending);
	pthread_mutex_destroy(&d->lock);
	free(d->sysman.modules);
	free(d);
}

/* Each step of these leaves its mark in the device, so that after an error the next call goes on where this one failed: nothing is made
 * twice, and nothing is lost. */

static tml_status open_own(tml_device *d) {
	ze_context_desc_t desc = { .stype = TML_S_CONTEXT_DESC };
	tml_status status = d->own.context ? TML_OK : TML_TRY(d->api, zeContextCreate, d->found.driver, &desc, &d->own.context);
	return status.code ? status : tml_open_stream(d, &d->own);
}

tml_status tml_start(tml_device *d) {
	tml_status status = open_own(d);
	if (!status.code) d->now = &d->own;
	return status;
}

/* Gives back the streams of hosts' contexts that were left. */
static tml_status close_left(tml_device *d) {
	while (d->left) {
		tml_stream *s = d->left;
		tml_status status = tml_close_stream(d, s);
		if (status.code) return status;
		d->left = s->next;
		free(s);
	}
	return TML_OK;
}

static void leave(tml_device *d, tml_stream *s) {
	if (!s) return;
	s->next = d->left;
	d->left = s;
}

tml_status tml_check_immediate(tml_device *d, ze_command_list_handle_t list) {
	ze_bool_t immediate = 0;
	if (!d->api->zeCommandListIsImmediate) return TML_OK;
	tml_status status = TML_TRY(d->api, zeCommandListIsImmediate, list, &immediate);
	if (!status.code && !immediate) return (tml_status){ TML_INVALID_COMMAND_LIST_TYPE, TML_CALL_zeCommandListIsImmediate };
	return tml_unavailable(status.code) ? TML_OK : status;  /* the driver is older than the loader */
}

/* Checks a host's list, as far as the loader can tell, and completes the context. */
static tml_status check_list(tml_device *d, ze_context_handle_t *context, ze_command_list_handle_t list) {
	const tml_api *api = d->api;
	tml_status checked = tml_check_immediate(d, list);
	if (checked.code) return checked;
	if (api->zeCommandListGetContextHandle) {
		ze_context_handle_t owner = NULL;
		tml_status status = TML_TRY(api, zeCommandListGetContextHandle, list, &owner);
		if (!status.code && *context && *context != owner) return (tml_status){ TML_INVALID_ARGUMENT, TML_CALL_zeCommandListGetContextHandle };
		if (!status.code) *context = owner;
		if (status.code && !tml_unavailable(status.code)) return status;  /* else the driver is older than the loader */
	}
	if (!*context) return (tml_status){ TML_INVALID_NULL_HANDLE, TML_CALL_zeCommandListGetContextHandle };
	tml_status status = tml_wait_for(d, list, 0);
	return status.code == TML_NOT_READY ? TML_OK : status;
}

/* Blocks of all kinds that lie in the host's context. */
static uint64_t count_lent(tml_device *d) {
	pthread_mutex_lock(&d->lock);
	uint64_t blocks = d->live_lent + d->adopted_lent;
	pthread_mutex_unlock(&d->lock);
	return blocks;
}

ze_context_handle_t tml_lent(tml_device *d) {
	bool set = d->now && d->now != &d->own;
	return set || count_lent(d) ? d->lent : NULL;
}

tml_status tml_bind(tml_device *d, ze_context_handle_t context, ze_command_list_handle_t list, uint64_t *kept) {
	tml_status status = list ? check_list(d, &context, list) : TML_OK;
	*kept = 0;
	if (status.code) return status;
	if (context && context != d->own.context && context != d->lent && (*kept = count_lent(d))) return TML_OK;
	tml_stream *fresh = NULL;
	if (!context || context == d->own.context) {
		status = open_own(d);
	} else if (!d->guest || d->guest->context != context) {
		if (!(fresh = calloc(1, sizeof *fresh))) return (tml_status){ TML_OUT_OF_HOST_MEMORY, TML_CALL_zeCommandListCreateImmediate };
		fresh->context = context;
		status = tml_open_stream(d, fresh);
	}
	if (!status.code && d->now) status = tml_synchronize(d);
	if (status.code) {
		leave(d, fresh);
	} else if (!context || context == d->own.context) {
		leave(d, d->guest);  /* the host may end its context now */
		d->guest = NULL;
		d->now = &d->own;
		d->host = list == d->own.list ? NULL : list;
	} else {
		if (fresh) {
			leave(d, d->guest);
			d->guest = fresh;
		}
		d->lent = context;
		d->now = d->guest;
		d->host = list;
	}
	close_left(d);  /* what fails stays on its list for the next time; tml_close reports it */
	return status;
}

tml_status tml_close(tml_device *d) {
	tml_status status = d->now ? tml_synchronize(d) : TML_OK;
	if (status.code) return status;
	d->now = NULL;
	d->host = NULL;
	leave(d, d->guest);
	d->guest = NULL;
	if (!(status = close_left(d)).code) status = tml_close_stream(d, &d->own);
	if (!status.code && d->own.context) status = TML_TRY(d->api, zeContextDestroy, d->own.context);
	if (!status.code) d->own.context = NULL;
	return status;
}

uint64_t tml_handle(tml_device *d) { return (uint64_t)(uintptr_t)(d->host ? d->host : d->now->list); }
