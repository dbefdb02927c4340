/* Blocks in a file; arena.h says how. */
#define _GNU_SOURCE
#include "arena.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define UNIT ((size_t)65536)            /* larger blocks begin at a unit; smaller ones are cut from runs of units, all of one class */
#define RUN (4 * UNIT)
#define MUCH ((size_t)1 << 20)          /* that an array becomes smaller by, in its place: it is given back at once */
#define HUGE_PAGE ((size_t)2 << 20)
#define LONGEST_PAUSE 63                /* see np_arena.pause */
#define KEPT_MOST ((uint64_t)256 << 20) /* of memory in free blocks */

pthread_mutex_t np_arena_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t round_up(size_t value, size_t grain) { return (value + grain - 1) & ~(grain - 1); }

/* Four classes to each doubling: at most a fifth of a block's addresses is unused, and none of its memory, from a page on. */
static unsigned class_of(size_t size)
{
	if (size <= 256) return size ? (unsigned)((size - 1) / 64) : 0;
	unsigned bit = 63 - (unsigned)__builtin_clzll(size - 1);
	return 4 + (bit - 8) * 4 + (unsigned)((size - 1 - ((size_t)1 << bit)) >> (bit - 2));
}

static size_t room_of(unsigned class)
{
	if (class < 4) return 64 * (class + 1);
	unsigned bit = 8 + (class - 4) / 4;
	return ((size_t)1 << bit) + (((size_t)(class - 4) % 4 + 1) << (bit - 2));
}

#define LARGE 36 /* the first class of blocks that are larger than a unit */
static bool is_large(unsigned class) { return class >= LARGE; }

/* To divide by the room of small blocks: 2**32 / (room / 64), rounded up, which is exact within a run. */
static uint64_t inverses[LARGE];

static void find_inverses(void)
{
	for (unsigned class = 0; class < LARGE; class++) inverses[class] = (((uint64_t)1 << 32) + room_of(class) / 64 - 1) / (room_of(class) / 64);
}

static np_block *block_of(np_arena *arena, uint32_t index) { return &arena->chunks[index / NP_ARENA_CHUNK][index % NP_ARENA_CHUNK]; }

static void *reserve(size_t bytes) { return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0); }

bool np_is_file(int fd, np_file file)
{
	struct stat found;
	return fd >= 0 && !fstat(fd, &found) && found.st_dev == file.device && found.st_ino == file.inode;
}

/* The descriptor, or -1: it is closed, and the number perhaps somebody else's. */
static int file_of(np_arena *arena)
{
	int fd = arena->fd;
	if (np_is_file(fd, arena->file)) return fd;
	arena->fd = -1;
	arena->gives = false;
	errno = EBADF;
	return -1;
}

/* Beginning at a huge page, as the file does, so that they can be had. */
static char *map_file(int fd, size_t capacity)
{
	char *wide = mmap(NULL, capacity + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (wide == MAP_FAILED) return NULL;
	char *base = (char *)round_up((uintptr_t)wide, HUGE_PAGE);
	if (mmap(base, capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int why = errno;
		munmap(wide, capacity + HUGE_PAGE);
		errno = why;
		return NULL;
	}
	if (base > wide) munmap(wide, (size_t)(base - wide));
	munmap(base + capacity, (size_t)(wide + HUGE_PAGE - base));
	madvise(base, capacity, MADV_DONTDUMP); /* a core dump would fill the holes */
	return base;
}

np_arena *np_arena_open(int fd, size_t capacity, size_t first, bool backs)
{
	struct stat found;
	if (fstat(fd, &found)) return NULL;
	find_inverses();
	np_arena *arena = reserve(sizeof *arena);
	if (arena == MAP_FAILED) return NULL;
	arena->file = (np_file){found.st_dev, found.st_ino};
	arena->capacity = capacity;
	arena->top = round_up(first, UNIT);
	arena->fd = fd;
	arena->gives = arena->mine = arena->punches = true;
	arena->backs = backs;
	arena->witness = -1;
	arena->blocks = 1;
	arena->units = reserve(capacity / UNIT * sizeof *arena->units);
	arena->base = arena->units == MAP_FAILED ? NULL : map_file(fd, capacity);
	if (arena->base) return arena;
	int why = errno;
	if (arena->units != MAP_FAILED) munmap(arena->units, capacity / UNIT * sizeof *arena->units);
	munmap(arena, sizeof *arena);
	errno = why;
	return NULL;
}

void np_arena_close(np_arena *arena)
{
	munmap(arena->base, arena->capacity);
	munmap(arena->units, arena->capacity / UNIT * sizeof *arena->units);
	for (size_t i = 0; i < NP_ARENA_CHUNKS && arena->chunks[i]; i++) munmap(arena->chunks[i], NP_ARENA_CHUNK * sizeof(np_block));
	if (np_is_file(arena->witness, arena->file)) close(arena->witness);
	if (file_of(arena) >= 0) close(arena->fd);
	munmap(arena, sizeof *arena);
}

/* Room in the file, so that writing there cannot fail. */
static bool back(np_arena *arena, uint64_t offset, size_t bytes)
{
	if (!arena->backs) return true;
	int fd = file_of(arena), result;
	if (fd < 0) return false;
	do
		result = fallocate(fd, 0, (off_t)offset, (off_t)bytes) ? errno : 0;
	while (result == EINTR);
	if (result == EOPNOTSUPP) result = posix_fallocate(fd, (off_t)offset, (off_t)bytes);
	return !result;
}

/* From here on down to np_arena_take all is called with the lock. */

/* Records for count blocks in a row; the first one's index, or 0. */
static uint32_t records(np_arena *arena, uint32_t count)
{
	uint32_t first = arena->blocks;
	if (first + count > (uint64_t)NP_ARENA_CHUNK * NP_ARENA_CHUNKS) return 0;
	for (uint32_t chunk = first / NP_ARENA_CHUNK; chunk <= (first + count - 1) / NP_ARENA_CHUNK; chunk++) {
		if (arena->chunks[chunk]) continue;
		np_block *made = reserve(NP_ARENA_CHUNK * sizeof *made);
		if (made == MAP_FAILED) return 0;
		arena->chunks[chunk] = made;
	}
	arena->blocks += count;
	return first;
}

static np_block *place(np_arena *arena, uint32_t index, uint64_t offset, unsigned class)
{
	np_block *block = block_of(arena, index);
	block->offset = offset;
	block->class = (uint16_t)class;
	block->room = room_of(class);
	block->index = index;
	return block;
}

static np_block *cut_large(np_arena *arena, unsigned class)
{
	size_t room = round_up(room_of(class), UNIT), offset = room >= HUGE_PAGE ? round_up(arena->top, HUGE_PAGE) : arena->top;
	if (offset > arena->capacity || room > arena->capacity - offset) return NULL;
	uint32_t index = records(arena, 1);
	if (!index) return NULL;
	arena->top = offset + room;
	arena->units[offset / UNIT] = index;
	if (arena->advises && room >= HUGE_PAGE) madvise(arena->base + offset, room, MADV_HUGEPAGE); /* a hint; kernels heed it where shmem_enabled is "advise" */
	return place(arena, index, offset, class);
}

/* The next block of a run of small ones, or of a new run. */
static np_block *cut_small(np_arena *arena, unsigned class)
{
	size_t room = room_of(class);
	uint32_t count = (uint32_t)(RUN / room), index;
	if (arena->classes[class].fresh == arena->classes[class].end) {
		if (RUN > arena->capacity - arena->top || !back(arena, arena->top, RUN) || !(index = records(arena, count))) return NULL;
		for (size_t unit = 0; unit < RUN / UNIT; unit++) arena->units[arena->top / UNIT + unit] = index;
		place(arena, index, arena->top, class);
		arena->top += RUN;
		arena->classes[class].fresh = index;
		arena->classes[class].end = index + count;
	}
	index = arena->classes[class].fresh++;
	uint32_t first = arena->classes[class].end - count;
	np_block *block = place(arena, index, block_of(arena, first)->offset + (index - first) * room, class);
	block->backed = room;
	return block;
}

static np_block *pop(np_arena *arena, uint32_t *list)
{
	if (!*list) return NULL;
	np_block *block = block_of(arena, *list);
	*list = block->next;
	return block;
}

static void push(np_arena *arena, uint32_t *list, np_block *block)
{
	block->next = *list;
	*list = block->index;
}

/* What a free block takes of the memory that is kept; small ones are never given back. */
static uint64_t kept_by(const np_block *block) { return is_large(block->class) ? round_up(block->dirty, PAGE) : 0; }

static void shelve(np_arena *arena, np_block *block)
{
	bool warm = !is_large(block->class) || block->dirty;
	push(arena, warm ? &arena->classes[block->class].warm : &arena->classes[block->class].cold, block);
	arena->kept += kept_by(block);
}

static np_block *unshelve(np_arena *arena, unsigned class)
{
	np_block *block = pop(arena, &arena->classes[class].warm);
	if (!block) return pop(arena, &arena->classes[class].cold);
	arena->kept -= kept_by(block);
	return block;
}

/* Whether another process, or a handle in this one, looks at it. */
static bool is_held(np_arena *arena, const np_block *block)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)block->offset, .l_len = 1};
	int fd = file_of(arena);
	return fd < 0 || fcntl(fd, F_OFD_GETLK, &lock) || lock.l_type != F_UNLCK; /* who cannot know must not use it again */
}

static void wait_for(np_arena *arena, np_block *block)
{
	uint32_t index = block->index;
	block->next = 0;
	if (arena->waiting.last)
		block_of(arena, arena->waiting.last)->next = index;
	else
		arena->waiting.first = index;
	arena->waiting.last = index;
	arena->waiting_bytes += block->room;
}

/* Looks at some that wait; each costs a system call. */
static void reap(np_arena *arena, uint32_t most)
{
	uint32_t end = arena->waiting.last, index = 0;
	while (most-- && index != end && (index = arena->waiting.first)) {
		np_block *block = block_of(arena, index);
		if (!(arena->waiting.first = block->next)) arena->waiting.last = 0;
		arena->waiting_bytes -= block->room;
		if (is_held(arena, block)) {
			wait_for(arena, block);
			continue;
		}
		block->exported = false;
		shelve(arena, block);
		arena->pause = arena->rest = 0;
	}
}

static np_block *find_room(np_arena *arena, size_t size)
{
	unsigned class = class_of(size);
	np_block *block = unshelve(arena, class);
	if (block) return block;
	if (arena->rest && !is_large(class))
		arena->rest--;
	else if (arena->waiting.first) {
		arena->pause = arena->pause < LONGEST_PAUSE ? 2 * arena->pause + 1 : arena->pause;
		arena->rest = arena->pause;
		reap(arena, is_large(class) ? 64 : 8);
		if ((block = unshelve(arena, class))) return block;
	}
	if ((block = is_large(class) ? cut_large(arena, class) : cut_small(arena, class))) return block;
	/* All is cut. A larger block does, since it takes memory only where it is written. */
	reap(arena, UINT32_MAX);
	for (; class < NP_ARENA_CLASSES; class++)
		if ((block = unshelve(arena, class))) return block;
	return NULL;
}

/* Gives back the memory of free blocks until at most `most` bytes are kept. The lock is not held while the kernel works. By the
 * mapping: a hole in whatever file has the descriptor's number now would be the program's data. */
static void trim(np_arena *arena, uint64_t most)
{
	pthread_mutex_lock(&np_arena_lock);
	uint32_t taken = 0;
	for (unsigned class = NP_ARENA_CLASSES; arena->punches && class-- && is_large(class);) {
		np_block *block;
		while (arena->kept > most && (block = pop(arena, &arena->classes[class].warm))) {
			arena->kept -= kept_by(block);
			push(arena, &taken, block);
		}
	}
	pthread_mutex_unlock(&np_arena_lock);
	while (taken) {
		np_block *block = block_of(arena, taken);
		taken = block->next;
		size_t length = round_up(block->dirty > block->backed ? block->dirty : block->backed, PAGE);
		bool done = !madvise(arena->base + block->offset, length, MADV_REMOVE);
		if (done) block->dirty = block->backed = 0;
		pthread_mutex_lock(&np_arena_lock);
		if (!done) arena->punches = false; /* this file system makes none */
		shelve(arena, block);
		pthread_mutex_unlock(&np_arena_lock);
	}
}

/* The file has room for the block's first bytes. */
static bool has_room(np_arena *arena, np_block *block, size_t size)
{
	size = round_up(size, PAGE);
	if (!arena->backs || !is_large(block->class) || size <= block->backed) return true;
	if (!back(arena, block->offset, size)) return false;
	block->backed = size;
	return true;
}

static void count(np_arena *arena, const np_block *block, int blocks)
{
	arena->live += (uint64_t)blocks;
	arena->live_bytes += (uint64_t)blocks * block->room;
}

/* A free block of the class, or a new one, or none if cut is false, that has room for size bytes in the file. */
static np_block *take(np_arena *arena, size_t size, unsigned class, bool cut)
{
	pthread_mutex_lock(&np_arena_lock);
	np_block *block = cut ? find_room(arena, size) : unshelve(arena, class);
	if (block) {
		count(arena, block, 1);
		block->epoch = arena->forks;
	}
	pthread_mutex_unlock(&np_arena_lock);
	if (!block || has_room(arena, block, size)) return block;
	pthread_mutex_lock(&np_arena_lock);
	count(arena, block, -1);
	shelve(arena, block);
	pthread_mutex_unlock(&np_arena_lock);
	return NULL;
}

/* The file cannot grow: its disk is full, perhaps of what is kept here, or it is as long as it may be. */
static __attribute__((noinline, cold)) np_block *take_from_full(np_arena *arena, size_t size)
{
	np_block *block = NULL;
	for (int trimmed = 0; !block && trimmed < 2; trimmed++) {
		if (trimmed) trim(arena, 0);
		for (unsigned class = class_of(size); !block && class < NP_ARENA_CLASSES; class++) block = take(arena, size, class, false);
	}
	return block;
}

np_block *np_arena_take(np_arena *arena, size_t size, bool zero)
{
	np_block *block = take(arena, size, 0, true);
	if (__builtin_expect(!block && arena->backs, 0)) block = take_from_full(arena, size);
	if (!block) return NULL;
	if (zero) memset(arena->base + block->offset, 0, block->dirty < size ? block->dirty : size);
	if (block->dirty < size) block->dirty = size;
	return block;
}

void np_arena_put(np_arena *arena, np_block *block)
{
	pthread_mutex_lock(&np_arena_lock);
	count(arena, block, -1);
	if (block->epoch < arena->lost)
		arena->waiting_bytes += block->room;
	else if ((block->exported || block->epoch < arena->forks) && is_held(arena, block)) {
		reap(arena, 2); /* more than come: what nobody holds any more does not pile up */
		wait_for(arena, block);
	} else {
		block->exported = false;
		shelve(arena, block);
	}
	if (arena->waiting.first && is_large(block->class)) reap(arena, 2); /* memory of some size may have become free */
	uint64_t most = arena->gives ? KEPT_MOST : 0;
	bool much = arena->kept > most && arena->punches;
	pthread_mutex_unlock(&np_arena_lock);
	if (much) trim(arena, most / 2);
}

bool np_arena_resize(np_arena *arena, np_block *block, size_t size)
{
	size_t room = block->room;
	if (size > room || (size < room / 4 && room > PAGE) || !has_room(arena, block, size)) return false;
	if (block->dirty < size) block->dirty = size;
	uint64_t end = round_up(size, PAGE);
	bool alone = !block->exported && block->epoch == arena->forks; /* others see all that was shared, as it was */
	if (alone && arena->punches && block->dirty > end + MUCH && !madvise(arena->base + block->offset + end, round_up(block->dirty - end, PAGE), MADV_REMOVE)) {
		block->dirty = end;
		if (block->backed > end) block->backed = end;
	}
	return true;
}

np_block *np_arena_find(np_arena *arena, const void *pointer)
{
	if ((const char *)pointer < arena->base || (const char *)pointer >= arena->base + arena->top) return NULL;
	uint64_t offset = (uint64_t)((const char *)pointer - arena->base);
	uint32_t first = arena->units[offset / UNIT];
	if (!first) return NULL;
	np_block *block = block_of(arena, first);
	if (!is_large(block->class)) {
		uint32_t index = first + (uint32_t)((offset - block->offset) / 64 * inverses[block->class] >> 32);
		block = block_of(arena, index);
	}
	return block->index && block->offset == offset ? block : NULL;
}

/* Another description of the same file, so that its locks are its own. */
static int reopen(np_arena *arena, int flags)
{
	char path[40];
	int fd = file_of(arena);
	if (fd < 0) return -1;
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int again = open(path, flags | O_CLOEXEC);
	if (again < 0 && errno == EACCES) arena->gives = false; /* the process is another user's since: its next arena is its own */
	if (again < 0 || np_is_file(again, arena->file)) return again;
	close(again); /* closed in between by another thread */
	errno = EBADF;
	return -1;
}

static int hold(int fd, uint64_t offset, uint64_t bytes)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = (off_t)offset, .l_len = (off_t)bytes};
	return fcntl(fd, F_OFD_SETLK, &lock);
}

int np_arena_export(np_arena *arena, np_block *block, bool readonly)
{
	int fd = reopen(arena, readonly ? O_RDONLY : O_RDWR);
	if (fd < 0) return -1;
	if (hold(fd, block->offset, 1)) {
		int why = errno;
		close(fd);
		errno = why;
		return -1;
	}
	pthread_mutex_lock(&np_arena_lock);
	block->exported = true;
	pthread_mutex_unlock(&np_arena_lock);
	return fd;
}

void np_arena_before_fork(np_arena *arena)
{
	if (!arena->mine || !arena->live) return;
	arena->witness = reopen(arena, O_RDONLY);
	if (arena->witness >= 0 && hold(arena->witness, 0, arena->top)) {
		close(arena->witness);
		arena->witness = -1;
	}
}

void np_arena_after_fork(np_arena *arena)
{
	if (!arena->mine || !arena->live) return;
	arena->forks++;
	if (arena->witness < 0)
		arena->lost = arena->forks;
	else
		close(arena->witness);
	arena->witness = -1;
}

void np_arena_in_child(np_arena *arena) { arena->gives = arena->mine = false; }
