#include "device.h"
#include <stdlib.h>
#include <time.h>

/* ---- giving memory back
 *
 * zeMemFree looks at nothing: memory that queued work uses must not be given to it. So each block that is freed is on a list until everything
 * that was queued before its free, as far as we know of it, is done. Only then is it given to the driver, and only then does it no longer
 * count. Where the driver defers frees (zeMemFreeExt with DEFER_FREE) it gets the block that way, which is safe also if a command that we do
 * not know of uses it. To give it at once, before its users are done, would free it no earlier, and nothing would tell when: the driver does
 * that some time after the last of them, and what may be allocated next depends on it.
 *
 * The list is looked at by an allocation, when room is asked for, by a synchronise, and by tml_reap, which comes by itself (bindings/fast/reap.go): what a
 * framework only adopts and drops, and never asks room for, is given back by the last one, not by its free. A free must not wait for the device, and frees
 * that were deferred would mostly find the ones before them still running. */

/* Trying again would not help: the block is none, or the device is lost. */
static bool final(uint32_t code) {
	return code == TML_INVALID_ARGUMENT || code == TML_INVALID_NULL_POINTER || code == TML_INVALID_NULL_HANDLE || tml_lost(code);
}

/* What a block takes from the device. */
static uint64_t in_pages(uint64_t bytes, uint64_t page) { return page > 1 ? (bytes + page - 1) / page * page : bytes; }

static int64_t now_us(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* How long what tml_room has read is good for an allocation: long enough for a caller that asks and then allocates. */
enum { NEWS_US = 2000 };

static void append(tml_device *d, tml_pending *node) {
	node->next = NULL;
	pthread_mutex_lock(&d->lock);
	*d->last = node;
	d->last = &node->next;
	pthread_mutex_unlock(&d->lock);
}

/* What an address is in a context, and on which device (NULL where that is not told). Memory that is none of the context's is of unknown type; a driver that
 * refuses such an address instead says the same. */
static tml_status type_in(tml_device *d, ze_context_handle_t context, uint64_t address, uint32_t *type, ze_device_handle_t *device) {
	ze_memory_allocation_properties_t properties = { .stype = TML_S_ALLOCATION_PROPERTIES };
	*device = NULL;
	tml_status status = TML_TRY(d->api, zeMemGetAllocProperties, context, (void *)(uintptr_t)address, &properties, device);
	*type = status.code ? TML_MEMORY_TYPE_UNKNOWN : (uint32_t)properties.type;
	return final(status.code) && !tml_lost(status.code) ? TML_OK : status;
}

tml_status tml_lies_in(tml_device *d, ze_context_handle_t context, uint64_t address, bool *lies) {
	uint32_t type;
	ze_device_handle_t device;
	tml_status status = type_in(d, context, address, &type, &device);
	*lies = type == TML_MEMORY_TYPE_DEVICE;
	return status;
}

/* The context in which a block was allocated, which is the one that it must be freed in. Where that cannot be asked now it is a guess, which
 * give_back corrects. */
static ze_context_handle_t context_of(tml_device *d, uint64_t address, bool ours) {
	ze_context_handle_t own = d->own.context, lent = tml_lent(d);
	if (!own || !lent) return own ? own : lent;
	pthread_mutex_lock(&d->lock);
	bool none_own = !d->live_own, none_lent = !d->live_lent;
	pthread_mutex_unlock(&d->lock);
	if (ours && none_own != none_lent) return none_own ? lent : own;
	ze_context_handle_t first = ours ? own : lent, other = ours ? lent : own;
	bool lies;
	return tml_lies_in(d, first, address, &lies).code || lies ? first : other;
}

/* Gives a block to the driver. A driver that defers frees may do so a little later than we know of, and only the figure of free memory tells
 * when; without one, nothing is deferred. */
static tml_status release(tml_device *d, ze_context_handle_t context, uint64_t address, bool *deferred) {
	void *block = (void *)(uintptr_t)address;
	*deferred = d->facts.defers_frees && __atomic_load_n(&d->told, __ATOMIC_RELAXED);
	if (*deferred) {
		ze_memory_free_ext_desc_t desc = { .stype = TML_S_FREE_DESC, .freePolicy = TML_DEFER_FREE };
		tml_status status = TML_TRY(d->api, zeMemFreeExt, context, &desc, block);
		if (!status.code || final(status.code)) return status;
		*deferred = false;
	}
	return TML_TRY(d->api, zeMemFree, context, block);
}

static tml_status give_back(tml_device *d, tml_pending *node, bool keep_always) {
	bool deferred;
	uint64_t pages = node->pages;
	pthread_mutex_lock(&d->lock);
	d->unsure += pages;
	pthread_mutex_unlock(&d->lock);
	tml_status status = release(d, node->context, node->address, &deferred);
	ze_context_handle_t lent = tml_lent(d), other = node->context == d->own.context ? lent : d->own.context;
	if (status.code == TML_INVALID_ARGUMENT && other && !release(d, other, node->address, &deferred).code) status = TML_OK;
	bool keep = status.code && (keep_always || !final(status.code));
	pthread_mutex_lock(&d->lock);
	d->unsure -= pages;
	if (!keep) d->pending_pages -= pages;
	if (deferred && !status.code) {
		d->returning += pages;
		d->slack += pages - node->bytes;
	}
	pthread_mutex_unlock(&d->lock);
	if (keep) {
		append(d, node);
		return status;
	}
	__atomic_fetch_sub(&d->pending_bytes, node->bytes, __ATOMIC_RELAXED);
	free(node);
	return status;
}

/* Learns which frees are behind everything, without waiting. */
static void look(tml_device *d) {
	if (d->host) {  /* our own list is never behind then */
		uint64_t number = tml_frees(d);
		if (tml_wait_for(d, d->host, 0).code) return;
		pthread_mutex_lock(&d->lock);
		tml_passed(d, number);
	} else {
		pthread_mutex_lock(&d->lock);
		tml_look_at_marks(d);
	}
	pthread_mutex_unlock(&d->lock);
	tml_set_mark(d);  /* for frees that found no room for one */
}

/* Takes the first block off the list if it is known to be out of use. */
static tml_pending *take_ready(tml_device *d) {
	pthread_mutex_lock(&d->lock);
	tml_pending *node = d->first;
	if (node && node->number > d->done) node = NULL;
	if (node && !(d->first = node->next)) d->last = &d->first;
	pthread_mutex_unlock(&d->lock);
	return node;
}

/* Gives back what the device is done with. An error stays with its block, for tml_synchronize to meet again and to report: the caller here
 * wants other memory. */
static void reap_ready(tml_device *d) {
	if (!__atomic_load_n(&d->pending_bytes, __ATOMIC_RELAXED)) return;
	look(d);
	for (tml_pending *node; (node = take_ready(d)) && !give_back(d, node, true).code;) {}
}

bool tml_reap(tml_device *d) {
	reap_ready(d);
	pthread_mutex_lock(&d->lock);
	bool waits = d->first && d->first->number > d->done;  /* a block at the head that is out of use could not be freed */
	pthread_mutex_unlock(&d->lock);
	return waits;
}

static tml_status reap_all(tml_device *d) {
	pthread_mutex_lock(&d->lock);
	tml_pending *list = d->first;
	uint64_t done = d->done;
	d->first = NULL;
	d->last = &d->first;
	pthread_mutex_unlock(&d->lock);
	tml_status first = TML_OK;
	while (list) {
		tml_pending *node = list;
		list = node->next;
		if (node->number > done) {  /* freed while we waited */
			append(d, node);
			continue;
		}
		first = tml_first(first, give_back(d, node, false));
	}
	return first;
}

/* Takes a reading of the figure to see whether deferred memory is back: what is in use and not ours is as much as before it was given to the
 * driver. last: it is not waited for any longer, so the rest must be of others. */
static bool returned(tml_device *d, const tml_figure *figure, bool last) {
	pthread_mutex_lock(&d->lock);
	uint64_t total = d->facts.total, used = figure->free < total ? total - figure->free : 0, ours = d->held + d->pending_pages;
	uint64_t beyond = used > ours ? used - ours : 0;
	bool back = !d->returning || !figure->source || beyond <= d->beyond + d->slack;
	if (back || last) {
		d->returning = d->slack = 0;
		if (figure->source) d->beyond = beyond;
	}
	pthread_mutex_unlock(&d->lock);
	return back || last;
}

/* Waits for memory that the driver frees some time after it got it. Others, and a host framework whose memory was adopted, may take memory just now,
 * which looks the same, so it is not waited for long: 6 ms in all. (With 0.4 s a full device under such a host spent most of its time here.) */
static void await_return(tml_device *d) {
	enum { FIRST_NS = 50000, STEPS = 7 };
	pthread_mutex_lock(&d->lock);
	bool returning = d->returning;
	pthread_mutex_unlock(&d->lock);
	for (int i = 0; returning; i++) {
		tml_figure figure = tml_memory(d);
		returning = !returned(d, &figure, i == STEPS);
		if (returning) nanosleep(&(struct timespec){ 0, FIRST_NS << i }, NULL);
	}
}

tml_status tml_synchronize(tml_device *d) {
	uint64_t number = tml_frees(d);
	tml_status status = d->host ? tml_wait_for(d, d->host, UINT64_MAX) : TML_OK;
	if (!status.code) status = tml_wait(d, d->now);
	if (status.code) return status;
	pthread_mutex_lock(&d->lock);
	tml_passed(d, number);
	tml_look_at_marks(d);
	pthread_mutex_unlock(&d->lock);
	/* What the device has now, to see afterwards whether what was freed is back. */
	if (__atomic_load_n(&d->told, __ATOMIC_RELAXED) && __atomic_load_n(&d->pending_bytes, __ATOMIC_RELAXED)) {
		tml_figure figure = tml_memory(d);
		returned(d, &figure, false);
	}
	status = reap_all(d);
	await_return(d);
	return status;
}

/* A block is live no more, or not ours. What was no block, which its free will tell, was not counted either. The lock is held. */
static void forget(tml_device *d, uint64_t bytes, ze_context_handle_t context, bool ours) {
	bool own = context == d->own.context;
	if (!ours) {
		if (!own && d->adopted_lent) d->adopted_lent--;
		return;
	}
	uint64_t pages = in_pages(bytes, d->page), *live = own ? &d->live_own : &d->live_lent;
	d->held -= pages < d->held ? pages : d->held;
	if (*live) --*live;
}

static tml_status find_in(tml_device *d, ze_context_handle_t context, uint64_t address, tml_place *place) {
	uint32_t type;
	tml_status status = type_in(d, context, address, &type, &place->device);
	place->host = type == TML_MEMORY_TYPE_HOST;
	place->known = place->host || type == TML_MEMORY_TYPE_DEVICE;
	if (!place->known || place->host || !d->api->zeMemGetAddressRange) return status;
	void *base = NULL;
	size_t bytes = 0;
	status = TML_TRY(d->api, zeMemGetAddressRange, context, (void *)(uintptr_t)address, &base, &bytes);
	place->base = (uintptr_t)base;
	place->bytes = bytes;
	place->told = !status.code;
	return status;
}

/* Whether a block on the list of frees has this address. */
static bool waits(tml_device *d, uint64_t address) {
	pthread_mutex_lock(&d->lock);
	tml_pending *node = d->first;
	while (node && address - node->address >= node->bytes) node = node->next;
	pthread_mutex_unlock(&d->lock);
	return node;
}

tml_status tml_examine(tml_device *d, uint64_t address, tml_place *place) {
	ze_context_handle_t lent = tml_lent(d), own = d->own.context;
	tml_status in_lent = TML_OK, in_own = TML_OK;
	*place = (tml_place){ .freed = waits(d, address) };
	if (place->freed) return TML_OK;
	if (lent) in_lent = find_in(d, lent, address, place);
	if (place->known) return in_lent;
	if (!tml_lost(in_lent.code) && own) in_own = find_in(d, own, address, place);
	return place->known ? in_own : tml_first(in_lent, in_own);  /* it may lie where could not be asked */
}

tml_status tml_adopt(tml_device *d, uint64_t address, bool *known) {
	ze_context_handle_t lent = tml_lent(d), own = d->own.context;
	tml_status in_lent = TML_OK, in_own = TML_OK;
	*known = false;
	if (lent) in_lent = tml_lies_in(d, lent, address, known);
	if (*known) {
		pthread_mutex_lock(&d->lock);
		d->adopted_lent++;
		pthread_mutex_unlock(&d->lock);
		return TML_OK;
	}
	if (!tml_lost(in_lent.code) && own) in_own = tml_lies_in(d, own, address, known);
	return *known ? TML_OK : tml_first(in_lent, in_own);  /* it may lie where could not be asked */
}

/* The core counts the block no more, and neither does the rule of capacity, which sees one of ours among the others' from now on. */
void tml_disown(tml_device *d, uint64_t address, uint64_t bytes, bool ours) {
	ze_context_handle_t context = context_of(d, address, ours);
	pthread_mutex_lock(&d->lock);
	forget(d, bytes, context, ours);
	if (ours) d->beyond += in_pages(bytes, d->page);
	pthread_mutex_unlock(&d->lock);
}

tml_status tml_free(tml_device *d, uint64_t address, uint64_t bytes, bool ours) {
	ze_context_handle_t context = context_of(d, address, ours);
	pthread_mutex_lock(&d->lock);
	forget(d, bytes, context, ours);
	pthread_mutex_unlock(&d->lock);
	tml_pending *node = calloc(1, sizeof *node);
	if (!node) {  /* no host memory for the list: wait now */
		tml_status status = d->host ? tml_wait_for(d, d->host, UINT64_MAX) : TML_OK;
		if (!status.code) status = tml_wait(d, d->now);
		bool deferred;
		return status.code ? status : release(d, context, address, &deferred);
	}
	*node = (tml_pending){ .address = address, .bytes = bytes, .context = context };
	__atomic_fetch_add(&d->pending_bytes, bytes, __ATOMIC_RELAXED);
	pthread_mutex_lock(&d->lock);
	node->pages = in_pages(bytes, d->page);
	d->pending_pages += node->pages;
	if (!ours) d->beyond -= node->pages < d->beyond ? node->pages : d->beyond;  /* now it is counted */
	node->number = ++d->frees;
	*d->last = node;
	d->last = &node->next;
	pthread_mutex_unlock(&d->lock);
	return tml_set_mark(d);
}

/* ---- allocation */

/* zeMemAllocDevice can promise more than the device has: it succeeds, and the work that uses the memory fails, or ends the process. So what
 * may be promised is decided here.
 *
 * The device's memory is the size that zeDeviceGetMemoryProperties tells for the memory that is allocated from. Of it go: what we have,
 * live or freed and not known to be back, rounded to the driver's pages; and what is used by others, which is what Sysman (or the driver's
 * figure of usable size) says is not free, less ours. Where neither can be read, others are not seen, and all but a sixteenth is thought to
 * be ours: then the rule still keeps our own allocations within the device. (The sixteenth is for what the driver itself needs, and for the
 * pages of adopted blocks, of which only the bytes are known.) Memory that is promised and was never used is not missing in Sysman's figure,
 * which is why that alone would not do.
 *
 * What we have is what this device counts itself, or what the caller of tml_room counts, whichever is more: memory that a host framework
 * allocated and the core adopted is known to the core only. */

uint64_t tml_spare(uint64_t total) { return total / 16; }

/* What we have, with the lock held. */
static uint64_t ours_now(const tml_device *d, uint64_t live) { return (live > d->held ? live : d->held) + d->pending_pages; }

/* What of it is certainly in use on the device. */
static uint64_t certain(tml_device *d, uint64_t live) {
	pthread_mutex_lock(&d->lock);
	uint64_t bytes = ours_now(d, live), unsure = d->unsure < bytes ? d->unsure : bytes;
	pthread_mutex_unlock(&d->lock);
	return bytes - unsure;
}

/* Reads what others use: the spare, and TML_UNKNOWN in *shown, where nothing tells. What we have may change while the figure is read, and then
 * nobody knows which of it is in the figure: it is read again, and at last the less is taken for ours, so that others are never too few. */
static tml_status read_others(tml_device *d, uint64_t live, uint64_t *others, uint64_t *shown) {
	tml_figure figure;
	uint64_t before, after = certain(d, live), total = d->facts.total;
	enum { TRIES = 4 };
	for (int i = 0; i < TRIES; i++) {
		before = after;
		figure = tml_memory(d);
		after = certain(d, live);
		if (before == after || !figure.source) break;
	}
	__atomic_store_n(&d->told, figure.source != TML_SOURCE_NONE, __ATOMIC_RELAXED);
	returned(d, &figure, false);
	uint64_t used = figure.free < total ? total - figure.free : 0, least = before < after ? before : after;
	*others = !figure.source ? tml_spare(total) : used > least ? used - least : 0;
	*shown = figure.source ? *others : TML_UNKNOWN;
	return tml_lost(figure.status.code) ? figure.status : TML_OK;
}

tml_result tml_room(tml_device *d, uint64_t live) {
	tml_result room = { d->facts.total ? 0 : UINT64_MAX, TML_OK };
	uint64_t others, shown;
	reap_ready(d);
	room.status = read_others(d, live, &others, &shown);
	if (room.status.code) return room;
	pthread_mutex_lock(&d->lock);
	d->news_until = now_us() + NEWS_US;
	d->news_others = others;
	d->news_shown = shown;
	uint64_t taken = ours_now(d, live) + others;
	if (d->facts.total > taken) room.value = d->facts.total - taken;
	if (d->page > 1) room.value -= room.value % d->page;
	pthread_mutex_unlock(&d->lock);
	return room;
}

/* Counts bytes that are about to be allocated, if there is room for them. */
static bool reserve(tml_device *d, uint64_t bytes, uint64_t *page, tml_block *block) {
	pthread_mutex_lock(&d->lock);
	bool news = now_us() < d->news_until;  /* tml_room has just asked: one reading serves both */
	uint64_t others = d->news_others;
	block->others = d->news_shown;
	d->news_until = 0;
	pthread_mutex_unlock(&d->lock);
	if (!news) block->status = read_others(d, 0, &others, &block->others);
	if (block->status.code) return false;
	pthread_mutex_lock(&d->lock);
	*page = d->page;
	block->held = d->held;
	block->pending = d->pending_pages;
	uint64_t total = d->facts.total, taken = d->held + d->pending_pages + others, more = in_pages(bytes, d->page);
	block->refused = total && (more > total || taken > total - more);
	if (!block->refused) {
		d->held += more;
		d->unsure += more;
	}
	pthread_mutex_unlock(&d->lock);
	return !block->refused;
}

/* Counts a reservation as a live block, or takes it back. The driver's pages are known from the first block on. */
static void conclude(tml_device *d, uint64_t bytes, uint64_t page, bool live) {
	pthread_mutex_lock(&d->lock);
	d->held -= in_pages(bytes, page);
	d->unsure -= in_pages(bytes, page);
	if (live) {
		d->held += in_pages(bytes, d->page);
		if (d->now == &d->own) d->live_own++;
		else d->live_lent++;
	}
	pthread_mutex_unlock(&d->lock);
}

static void learn_page(tml_device *d, void *address, uint64_t bytes) {
	ze_memory_allocation_properties_t properties = { .stype = TML_S_ALLOCATION_PROPERTIES };
	tml_status status = TML_TRY(d->api, zeMemGetAllocProperties, d->now->context, address, &properties, NULL);
	if (status.code || !properties.pageSize) return;  /* the next block tells */
	pthread_mutex_lock(&d->lock);
	bool alone = d->held == bytes;  /* what else was counted without pages would be given back with them */
	if (alone && !d->page) d->page = properties.pageSize;
	pthread_mutex_unlock(&d->lock);
}

tml_block tml_allocate(tml_device *d, uint64_t bytes) {
	tml_block block = { .status = TML_OK, .others = TML_UNKNOWN };
	uint64_t page;
	reap_ready(d);
	if (!reserve(d, bytes, &page, &block)) return block;
	tml_relaxed_limits relaxed = { .stype = (ze_structure_type_t)d->facts.relaxed, .flags = TML_RELAXED_MAX_SIZE };
	ze_device_mem_alloc_desc_t desc = { .stype = TML_S_DEVICE_ALLOC_DESC, .pNext = bytes > d->facts.largest && d->facts.relaxed ? &relaxed : NULL };
	enum { ALIGNMENT = 256 };  /* what arrays of other devices have */
	void *address = NULL;
	block.status = TML_TRY(d->api, zeMemAllocDevice, d->now->context, &desc, bytes, ALIGNMENT, d->found.device, &address);
	if (!block.status.code && !page) learn_page(d, address, bytes);
	conclude(d, bytes, page, !block.status.code);
	block.address = block.status.code ? 0 : (uint64_t)(uintptr_t)address;
	return block;
}
