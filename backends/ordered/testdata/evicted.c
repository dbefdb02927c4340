/* A kept block whose free fails is never lost, not even where the host has no memory to note it: a program of its own over a vendor of a few lines, since nothing
 * else can make calloc fail (the linker's --wrap). Exit status 0: all is well; else the number of the line. */
#include "../device.h"
#include <stdlib.h>
#include <string.h>

void *__real_calloc(size_t count, size_t size);
static bool no_memory;
void *__wrap_calloc(size_t count, size_t size) { return no_memory ? NULL : __real_calloc(count, size); }

static int failing;      /* the next so many frees fail */
static uint64_t freed;   /* blocks */
static tmo_status one_free(const void *api, uint64_t address) {
	if (failing && failing--) return (tmo_status){ 9, 0 };
	freed++;
	return TMO_OK;
}

static tmo_status allocate(const void *api, uint64_t *address, uint64_t bytes) { static uint64_t last; *address = (last += 1 << 20); return TMO_OK; }
static tmo_status mode(const void *api, int *mode) { return TMO_OK; }
static tmo_status enter(const void *api, int device, uint64_t context, tmo_guard *guard) { return TMO_OK; }
static tmo_status stream(const void *api, uint64_t stream) { return TMO_OK; }
static tmo_status create(const void *api, uint64_t *event) { *event = 1; return TMO_OK; }
static tmo_status record(const void *api, uint64_t event, uint64_t stream) { return TMO_OK; }
static tmo_status figures(const void *api, uint64_t *free_bytes, uint64_t *total) { return TMO_OK; }
static tmo_status finish(const void *api) { return TMO_OK; }
static enum tmo_meaning meaning(int code) { return TMO_OTHER; }

static const tmo_vendor vendor = {
	.free_waits = true, .meaning = meaning, .enter = enter, .finish = finish, .exchange_mode = mode, .stream_synchronize = stream, .not_capturing = stream,
	.event_create = create, .event_destroy = stream, .event_record = record, .event_query = stream, .event_synchronize = stream,
	.allocate = allocate, .free = one_free, .memory = figures,
};

#define EXPECT(is) do { if (!(is)) exit(__LINE__ & 0xff); } while (0)

static void no_spares(tmo_device *d) {
	while (d->spare) (void)tmo_take_node(d);
}

int main(void) {
	tmo_device *d = tmo_new(&vendor, NULL, 0, 1 << 20, false);
	d->context = 1;
	d->stream = 5;
	uint64_t blocks[2];
	for (int i = 0; i < 2; i++) EXPECT((blocks[i] = tmo_allocate(d, 4096).value));
	for (int i = 0; i < 2; i++) EXPECT(!tmo_free(d, blocks[i], 4096, true, false).code);
	EXPECT(!tmo_synchronize(d).code && tmo_memory(d).cached == 8192 && !freed);

	/* The error is told, and the block is where it was. */
	no_spares(d);
	no_memory = true;
	failing = 1;
	tmo_result trimmed = tmo_trim(d);
	EXPECT(trimmed.status.code == 9 && !trimmed.value && tmo_memory(d).cached == 8192 && !tmo_memory(d).status.code);

	/* With a node it waits on the list, and the next wait frees it. */
	no_memory = false;
	failing = 1;
	trimmed = tmo_trim(d);
	EXPECT(trimmed.status.code == 9 && trimmed.value == 4096 && freed == 1);
	EXPECT(tmo_memory(d).cached == 0 && d->pending_bytes == 4096);
	EXPECT(!tmo_trim(d).status.code && freed == 2 && !d->pending_bytes);

	/* A block that is being freed has its place to come back to: others do not take it. */
	tmo_cache *c = &d->cache;
	tmo_block out;
	for (uint64_t n = 1; n <= TMO_MOST_KEPT; n++) {
		tmo_cache_note(c, n << 12, 512);
		EXPECT(tmo_cache_keep(c, n << 12));
	}
	EXPECT(tmo_cache_evict(c, false, &out) && out.address == 1 << 12);
	tmo_cache_note(c, 1 << 30, 512);
	EXPECT(!tmo_cache_keep(c, 1 << 30));
	tmo_cache_evicted(c, out, true);
	EXPECT(c->count == TMO_MOST_KEPT && tmo_cache_bytes(c) == TMO_MOST_KEPT * 512);
	EXPECT(tmo_cache_evict(c, false, &out) && out.address == 2 << 12);
	tmo_cache_evicted(c, out, false);
	tmo_cache_note(c, 1 << 30, 512);
	EXPECT(tmo_cache_keep(c, 1 << 30));
	return 0;
}
