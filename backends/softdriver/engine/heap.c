#include "heap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "calls.h"
#include "device.h"
#include "record.h"
#include "settings.h"

enum { SMALL, LARGE };
static const uint64_t page = 4096, huge_page = 2ull << 20;
static const uint64_t large_from = 1ull << 20;     /* blocks from here on start on a huge page */
static const uint64_t small_granule = SOFT_GRANULE; /* alignment of small blocks where addresses are used again */
static const uint64_t growth = 64ull << 20;        /* a heap that uses addresses again makes this much accessible at a time */

/* One reservation of address space. It is never given back: no later mapping of the process may get a dead device address. */
struct soft_arena {
	uint64_t base, bytes;
	uint64_t top;        /* where no block was yet, from base */
	uint64_t accessible; /* from base (heaps that use addresses again) */
	struct soft_heap *heap;
	struct soft_block *last;
	struct soft_starts starts;
	struct soft_arena *next;
};

static struct soft_arena *arenas; /* newest first */
static struct soft_block *spare_blocks;
static uint64_t last_id;

/* The kernel limits the mappings of a process. Quarantine needs one for each run of accessible pages and one for each gap between two.
 * So: a guard page after each block only while blocks are few; neighbours without guards share a run; and when the runs reach the
 * limit, a block whose end would split one more stays mapped (emptied, and refused by every call) until a neighbour dies too. */
static uint64_t runs, run_limit, guard_limit;

static void read_mapping_limit(void)
{
	if (run_limit)
		return;
	unsigned long most = 65530;
	FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
	if (file) {
		if (fscanf(file, "%lu", &most) != 1)
			most = 65530;
		fclose(file);
	}
	run_limit = most / 4; /* two mappings a run, and half of all for the rest of the process */
	guard_limit = most / 8;
}

static struct soft_block *block_record(void)
{
	if (!spare_blocks) {
		enum { BATCH = 512 };
		struct soft_block *batch = soft_records(BATCH, sizeof *batch);
		for (int i = 0; i < BATCH; i++) {
			batch[i].after = spare_blocks;
			spare_blocks = &batch[i];
		}
	}
	struct soft_block *block = spare_blocks;
	spare_blocks = block->after;
	memset(block, 0, sizeof *block);
	return block;
}

static void discard_record(struct soft_block *block)
{
	block->after = spare_blocks;
	spare_blocks = block;
}

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

void soft_heap_open(struct soft_heap *heap, struct soft_device *device, int large, int reuse)
{
	memset(heap, 0, sizeof *heap);
	heap->device = device;
	heap->reuse = reuse;
	heap->granule = large ? huge_page : reuse ? small_granule : page;
}

static int heap_is_large(const struct soft_heap *heap) { return heap->granule == huge_page; }

/* The process has no place for a block. The client gets a code that says little (CUDA, HIP: 304), so the first time it is told here what is used up. */
static struct soft_block *no_place(const struct soft_heap *heap, const char *refused)
{
	static int told;
	if (told++)
		return NULL;
	fprintf(stderr, "%s: the kernel refused %s (%s) for a block: allocations fail from now on. %s\n", soft_abi.name, refused, strerror(errno),
	        heap->reuse ? "Raise the process's limits (ulimit -v, vm.max_map_count), or allocate less."
	                    : "Quarantine uses each address once, and a process has some 128 TiB of them: with TMSOFT_QUARANTINE=0 they are used again.");
	return NULL;
}

/* ---- arenas ---- */

static struct soft_arena *arena_open(struct soft_heap *heap, uint64_t span)
{
	read_mapping_limit();
	/* Quarantine eats address space as fast as a program allocates, so it gets a lot; where the process may not have that, less will do. */
	uint64_t bytes = heap->reuse ? 256ull << 30 : heap_is_large(heap) ? 4ull << 40 : 256ull << 30;
	uint64_t least = round_up(span + huge_page, huge_page);
	if (bytes < least)
		bytes = least;
	char *p;
	while ((p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) == MAP_FAILED && bytes > least) {
		bytes /= 2;
		if (bytes < least)
			bytes = least;
	}
	if (p == MAP_FAILED)
		return NULL;
	struct soft_arena *arena = soft_records(1, sizeof *arena);
	arena->base = round_up((uint64_t)(uintptr_t)p, huge_page);
	arena->bytes = bytes - (arena->base - (uint64_t)(uintptr_t)p);
	arena->bytes -= arena->bytes % huge_page;
	if (soft_starts_open(&arena->starts, arena->bytes / heap->granule)) {
		munmap(p, bytes);
		free(arena);
		return NULL;
	}
	/* Huge pages make first touches and copies several times faster. A kernel without them refuses the advice, and nothing else changes. In quarantine
	 * each block gets the advice by itself: the kernel joins only mappings of the same advice, and the guard pages between dead blocks must join. */
	if (heap->reuse)
		(void)madvise((void *)arena->base, arena->bytes, MADV_HUGEPAGE);
	arena->heap = heap;
	arena->next = arenas;
	arenas = arena;
	heap->arena = arena;
	return arena;
}

static struct soft_arena *arena_of(uint64_t address)
{
	for (struct soft_arena *arena = arenas; arena; arena = arena->next)
		if (address - arena->base < arena->bytes)
			return arena;
	return NULL;
}

static uint64_t granule_of(const struct soft_arena *arena, uint64_t address) { return (address - arena->base) / arena->heap->granule; }

static struct soft_block *append(struct soft_arena *arena, uint64_t span)
{
	struct soft_block *block = block_record();
	block->arena = arena;
	block->address = arena->base + arena->top;
	block->span = span;
	block->before = arena->last;
	if (arena->last)
		arena->last->after = block;
	arena->last = block;
	arena->top += span;
	return block;
}

/* Takes a block out of the address order; its span must have gone to a neighbour or to the arena's top. */
static void unlink_block(struct soft_block *block)
{
	if (block->before)
		block->before->after = block->after;
	if (block->after)
		block->after->before = block->before;
	else
		block->arena->last = block->before;
	discard_record(block);
}

/* ---- addresses that are used again: bins of free blocks by size, eight steps between powers of two (a "two-level segregated fit") ---- */

static void bin_of(uint64_t granules, unsigned *bin, unsigned *step)
{
	if (granules < SOFT_HEAP_STEPS) {
		*bin = 0;
		*step = (unsigned)granules;
		return;
	}
	unsigned log = 63 - (unsigned)__builtin_clzll(granules);
	*bin = log - 2;
	*step = (unsigned)(granules >> (log - 3)) & 7;
}

static void bin_insert(struct soft_heap *heap, struct soft_block *block)
{
	unsigned bin, step;
	bin_of(block->span / heap->granule, &bin, &step);
	struct soft_block **head = &heap->bins[bin][step];
	block->state = SOFT_BLOCK_FREE;
	block->bin_before = NULL;
	block->bin_after = *head;
	if (*head)
		(*head)->bin_before = block;
	*head = block;
	heap->steps[bin] |= (uint8_t)(1u << step);
	heap->filled |= 1ull << bin;
}

static void bin_remove(struct soft_heap *heap, struct soft_block *block)
{
	unsigned bin, step;
	bin_of(block->span / heap->granule, &bin, &step);
	if (block->bin_before)
		block->bin_before->bin_after = block->bin_after;
	else
		heap->bins[bin][step] = block->bin_after;
	if (block->bin_after)
		block->bin_after->bin_before = block->bin_before;
	if (!heap->bins[bin][step]) {
		heap->steps[bin] &= (uint8_t)~(1u << step);
		if (!heap->steps[bin])
			heap->filled &= ~(1ull << bin);
	}
}

/* A free block of at least span. The bin of this very size is looked at first, though only some of its blocks fit: a block that was
 * just freed is found again by the next request of its size. */
static struct soft_block *bin_find(struct soft_heap *heap, uint64_t span)
{
	unsigned bin, step;
	uint64_t granules = span / heap->granule;
	bin_of(granules, &bin, &step);
	int looks = 8;
	for (struct soft_block *block = heap->bins[bin][step]; block && looks--; block = block->bin_after)
		if (block->span >= span)
			return block;
	if (++step == SOFT_HEAP_STEPS) {
		step = 0;
		bin++;
	}
	unsigned steps = bin < SOFT_HEAP_BINS ? heap->steps[bin] & (0xffu << step) & 0xffu : 0;
	if (!steps) {
		uint64_t higher = bin + 1 < 64 ? heap->filled & (~0ull << (bin + 1)) : 0;
		if (!higher)
			return NULL;
		bin = (unsigned)__builtin_ctzll(higher);
		steps = heap->steps[bin];
	}
	return heap->bins[bin][__builtin_ctz(steps)];
}

/* The part of block behind span becomes a free block. */
static void split(struct soft_heap *heap, struct soft_block *block, uint64_t span)
{
	if (block->span == span)
		return;
	struct soft_block *rest = block_record();
	rest->arena = block->arena;
	rest->address = block->address + span;
	rest->span = block->span - span;
	rest->before = block;
	rest->after = block->after;
	if (rest->after)
		rest->after->before = rest;
	else
		block->arena->last = rest;
	block->after = rest;
	block->span = span;
	bin_insert(heap, rest);
}

static struct soft_block *take_again(struct soft_heap *heap, uint64_t size)
{
	uint64_t span = round_up(size, heap->granule);
	struct soft_block *block = bin_find(heap, span);
	if (block) {
		bin_remove(heap, block);
		split(heap, block, span);
		return block;
	}
	struct soft_arena *arena = heap->arena;
	if (!arena || arena->bytes - arena->top < span)
		arena = arena_open(heap, span);
	if (!arena)
		return no_place(heap, "address space");
	if (arena->top + span > arena->accessible) {
		uint64_t more = round_up(arena->top + span - arena->accessible, growth);
		if (more > arena->bytes - arena->accessible)
			more = arena->bytes - arena->accessible;
		if (mprotect((void *)(arena->base + arena->accessible), more, PROT_READ | PROT_WRITE))
			return no_place(heap, "a mapping");
		arena->accessible += more;
	}
	return append(arena, span);
}

static void give_again(struct soft_heap *heap, struct soft_block *block)
{
	struct soft_block *neighbour = block->before;
	if (neighbour && neighbour->state == SOFT_BLOCK_FREE) {
		bin_remove(heap, neighbour);
		neighbour->span += block->span;
		unlink_block(block);
		block = neighbour;
	}
	neighbour = block->after;
	if (neighbour && neighbour->state == SOFT_BLOCK_FREE) {
		bin_remove(heap, neighbour);
		block->span += neighbour->span;
		unlink_block(neighbour);
	}
	if (block->after) {
		bin_insert(heap, block);
	} else {
		block->arena->top -= block->span;
		unlink_block(block);
	}
}

/* ---- quarantine ---- */

static int accessible(const struct soft_block *block) { return block && block->mapped; }

static int touch(const struct soft_block *block, const struct soft_block *after) { return block->address + block->mapped == after->address; }

static struct soft_block *take_new(struct soft_heap *heap, uint64_t size)
{
	uint64_t mapped = round_up(size, page);
	uint64_t span = round_up(mapped + (runs < guard_limit ? page : 0), heap->granule);
	struct soft_arena *arena = heap->arena;
	if (!arena || arena->bytes - arena->top < span)
		arena = arena_open(heap, span);
	if (!arena)
		return no_place(heap, "address space");
	if (mprotect((void *)(arena->base + arena->top), mapped, PROT_READ | PROT_WRITE))
		return no_place(heap, "a mapping");
	if (heap_is_large(heap))
		(void)madvise((void *)(arena->base + arena->top), mapped, MADV_HUGEPAGE);
	struct soft_block *before = arena->last, *block = append(arena, span);
	block->mapped = mapped;
	if (!accessible(before) || !touch(before, block))
		runs++;
	return block;
}

/* Dead neighbours are one record, so that records are as few as blocks that live. */
static struct soft_block *merge_dead(struct soft_block *block)
{
	struct soft_block *before = block->before;
	if (!before || before->state != SOFT_BLOCK_DEAD || block->state != SOFT_BLOCK_DEAD)
		return block;
	before->span += block->span;
	unlink_block(block);
	return before;
}

static void bury(struct soft_block *block)
{
	struct soft_block *first = block, *last = block;
	block->state = SOFT_BLOCK_HUSK;
	while (first->before && first->before->state == SOFT_BLOCK_HUSK && touch(first->before, first))
		first = first->before;
	while (last->after && last->after->state == SOFT_BLOCK_HUSK && touch(last, last->after))
		last = last->after;
	int left = accessible(first->before) && touch(first->before, first);
	int right = accessible(last->after) && touch(last, last->after);
	uint64_t bytes = last->address + last->mapped - first->address;
	/* A new mapping instead of mprotect: it gives the pages back, and it always joins the dead neighbours' mapping. */
	if ((left && right && runs >= run_limit) ||
	    mmap((void *)first->address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) {
		madvise((void *)block->address, block->mapped, MADV_DONTNEED);
		return;
	}
	runs = runs + (uint64_t)(left + right) - 1;
	struct soft_block *end = last->after;
	for (struct soft_block *b = first, *next; b != end; b = next) {
		next = b->after;
		b->state = SOFT_BLOCK_DEAD;
		b->mapped = 0;
		merge_dead(b);
	}
	if (end)
		merge_dead(end);
}

/* ---- blocks ---- */

struct soft_block *soft_block_new(struct soft_device *device, uint64_t size)
{
	int reuse = !soft_setting(&soft_settings.quarantine);
	struct soft_heap *heap = &device->heaps[reuse][size < large_from ? SMALL : LARGE];
	struct soft_block *block = reuse ? take_again(heap, size) : take_new(heap, size);
	if (!block)
		return NULL;
	block->state = SOFT_BLOCK_LIVE;
	block->size = size;
	block->charge = soft_charge_of(size);
	block->pool = NULL;
	block->users = 0;
	block->over = 0;
	block->owner = NULL;
	block->id = ++last_id;
	soft_starts_set(&block->arena->starts, granule_of(block->arena, block->address), block);
	return block;
}

void soft_block_end(struct soft_block *block)
{
	if (block->users) {
		block->state = SOFT_BLOCK_DYING;
		return;
	}
	soft_starts_clear(&block->arena->starts, granule_of(block->arena, block->address));
	if (block->arena->heap->reuse)
		give_again(block->arena->heap, block);
	else
		bury(block);
}

enum soft_place soft_place(uint64_t address, struct soft_block **block)
{
	struct soft_arena *arena = arena_of(address);
	*block = NULL;
	if (!arena)
		return SOFT_PLACE_HOST;
	struct soft_block *found = soft_starts_find(&arena->starts, granule_of(arena, address));
	if (found && address - found->address < found->span) {
		*block = found;
		return SOFT_PLACE_BLOCK;
	}
	return !arena->heap->reuse && address - arena->base < arena->top ? SOFT_PLACE_DEAD : SOFT_PLACE_UNUSED;
}

struct soft_device *soft_block_device(const struct soft_block *block) { return block->arena->heap->device; }

int soft_block_quarantined(const struct soft_block *block) { return !block->arena->heap->reuse; }

void soft_blocks_visit(struct soft_device *device, void (*visit)(struct soft_block *))
{
	for (struct soft_arena *arena = arenas; arena; arena = arena->next) {
		if (arena->heap->device != device || !arena->top)
			continue;
		/* Downwards by address: ending a block merges records behind us. */
		struct soft_block *block = soft_starts_find(&arena->starts, granule_of(arena, arena->base + arena->top) - 1);
		while (block) {
			uint64_t granule = granule_of(arena, block->address);
			visit(block);
			block = granule ? soft_starts_find(&arena->starts, granule - 1) : NULL;
		}
	}
}
