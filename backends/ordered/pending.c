#include "device.h"
#include <stdlib.h>

/* Nodes: blocks whose free waits, and the events that say when. */

/* More events than this are not kept for reuse. A free needs one only while the device is behind. */
enum { MOST_SPARES = 1024 };

tmo_pending *tmo_take_node(tmo_device *d) {
	pthread_mutex_lock(&d->lock);
	tmo_pending *node = d->spare;
	if (node) {
		d->spare = node->next;
		d->spares--;
	}
	pthread_mutex_unlock(&d->lock);
	return node ? node : calloc(1, sizeof *node);
}

static void keep(tmo_device *d, tmo_pending *node) {
	node->next = d->spare;
	d->spare = node;
	d->spares++;
}

void tmo_put_node(tmo_device *d, tmo_pending *node) {
	node->recorded = node->refused = false;
	pthread_mutex_lock(&d->lock);
	bool room = d->spares < MOST_SPARES;
	if (room) keep(d, node);
	pthread_mutex_unlock(&d->lock);
	if (room) return;
	if (!node->event || !TMO_CALL(d, event_destroy, node->event).code) {
		free(node);
		return;
	}
	pthread_mutex_lock(&d->lock);  /* it could not be destroyed now: keep it after all */
	keep(d, node);
	pthread_mutex_unlock(&d->lock);
}

tmo_status tmo_make_event(tmo_device *d, tmo_pending *node) { return node->event ? TMO_OK : TMO_CALL(d, event_create, &node->event); }

tmo_status tmo_forget_events(tmo_device *d) {
	tmo_status first = TMO_OK;
	pthread_mutex_lock(&d->lock);
	for (tmo_pending **link = &d->spare; *link;) {
		tmo_pending *node = *link;
		tmo_status status = node->event ? TMO_CALL(d, event_destroy, node->event) : TMO_OK;
		if (status.code) {
			first = tmo_first(first, status);
			link = &node->next;
			continue;
		}
		*link = node->next;
		d->spares--;
		free(node);
	}
	pthread_mutex_unlock(&d->lock);
	return first;
}

void tmo_append(tmo_device *d, tmo_pending *node) {
	node->next = NULL;
	pthread_mutex_lock(&d->lock);
	*d->last = node;
	d->last = &node->next;
	pthread_mutex_unlock(&d->lock);
}

bool tmo_waits(tmo_device *d, uint64_t address) {
	pthread_mutex_lock(&d->lock);
	tmo_pending *node = d->first;
	while (node && address - node->address >= node->bytes) node = node->next;
	pthread_mutex_unlock(&d->lock);
	return node;
}

bool tmo_mark_late(tmo_device *d) {
	bool waits = false;
	pthread_mutex_lock(&d->lock);
	for (tmo_pending *node = d->first; node; node = node->next) {
		if (node->refused) continue;
		waits = true;
		if (!node->recorded) node->recorded = !tmo_make_event(d, node).code && !TMO_CALL(d, event_record, node->event, d->stream).code;
	}
	pthread_mutex_unlock(&d->lock);
	return waits;
}

tmo_pending *tmo_take_ready(tmo_device *d) {
	pthread_mutex_lock(&d->lock);
	tmo_pending **link = &d->first;
	while (*link && (*link)->refused) link = &(*link)->next;  /* these wait for tmo_synchronize, and nothing waits for them */
	tmo_pending *node = *link;
	if (node && (!node->recorded || TMO_CALL(d, event_query, node->event).code)) node = NULL;
	if (node && !(*link = node->next)) d->last = link;
	pthread_mutex_unlock(&d->lock);
	return node;
}

tmo_pending *tmo_take_all(tmo_device *d) {
	pthread_mutex_lock(&d->lock);
	tmo_pending *list = d->first;
	d->first = NULL;
	d->last = &d->first;
	pthread_mutex_unlock(&d->lock);
	return list;
}
