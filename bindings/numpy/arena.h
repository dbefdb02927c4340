/* An arena: a file that is mapped whole and shared, and the blocks that are cut from it. What "shared" and "mmap" have in common; they differ in the file.
 *
 * The file is sparse, and so are the address ranges: a block costs memory where it is written. Nothing but the arrays' bytes is in it. What is known of the blocks lies in
 * private memory: no process that maps the file can damage it, and a forked child has its own copy of it, as it was at the fork.
 *
 * Freed blocks are kept, with their memory, for the next array of about the size; what is kept beyond a limit is given back by making holes in the file.
 *
 * Whoever looks at a block from another process holds a lock on its first byte (an open file description's: it goes with the last descriptor, also by kill -9). A block that is
 * freed while one is held waits until it is let go. A forked child holds such locks on all that it has inherited.
 *
 * The mapping lives as long as the arena; the descriptor may not: a program that becomes a daemon closes all that it finds, and the number is its next file's. So the
 * descriptor is looked at before each use. Where it is lost, nobody can be asked any more who looks at a block: those that somebody may see are never used again.
 * Knows nothing of Python. */
#ifndef NP_ARENA_H
#define NP_ARENA_H
#include <pthread.h>
#include <sys/types.h>
#include "header.h"

#define NP_ARENA_CLASSES 156  /* sizes up to NP_MOST_BYTES */
#define NP_ARENA_CHUNK 4096   /* blocks whose records are made at once */
#define NP_ARENA_CHUNKS 65536

typedef struct np_block {
	np_header header;
	uint64_t offset;   /* in the file */
	uint64_t dirty;    /* bytes, from its start, that may be other than zero */
	uint64_t backed;   /* bytes, from its start, that the file has room for; arenas with `backs` */
	uint64_t room;     /* bytes that it can have */
	uint32_t index;    /* its own */
	uint32_t next;     /* in the list that it is in; 0: the last */
	uint16_t class;
	bool exported;     /* somebody may hold a lock */
	uint32_t epoch;    /* forks that the arena had seen when the block was given: a resize in its place does not make it a newer one */
} np_block;

_Static_assert(sizeof(np_block) == 64, "a block's record is one cache line");

/* What a file is known again by. */
typedef struct np_file {
	dev_t device;
	ino_t inode;
} np_file;

/* Whether a descriptor is still one of the file. */
bool np_is_file(int fd, np_file file);

typedef struct np_list { uint32_t first, last; } np_list;

typedef struct np_arena {
	struct np_arena *next;
	char *base;
	size_t capacity, top;     /* bytes mapped, and bytes of them that were cut into blocks */
	np_file file;
	_Atomic int fd;           /* -1: the program has closed it */
	_Atomic bool gives;       /* blocks for new arrays; false: not mine, or its descriptor is of no use any more */
	bool mine;                /* false: of the process that this one was forked from; its blocks are only counted */
	bool backs;               /* room in the file is reserved before a block is given: writing to a hole could fail, which is a signal that kills */
	bool punches;             /* the file system makes holes */
	bool advises;             /* asks for huge pages */
	uint32_t forks;           /* so far; what was given before the last one is inherited by a child */
	uint32_t lost;            /* the number of the last fork that could not be watched: what was given before is never used again */
	int witness;              /* in a fork: holds the child's locks */
	uint32_t *units;          /* by 64 KiB of the file: the first block there */
	uint32_t blocks;          /* records made; 0 is none's */
	struct {
		uint32_t warm, cold;  /* free blocks: with memory that was written, without */
		uint32_t fresh, end;  /* of small ones: records of the newest run that were never given out */
	} classes[NP_ARENA_CLASSES];
	np_list waiting;          /* freed, and held by another process */
	uint32_t pause, rest;     /* small blocks that are cut between two looks at those, each of which costs system calls: more while none is let go; and how many are left */
	uint64_t live, live_bytes, kept, waiting_bytes; /* kept: bytes of large free blocks with memory */
	np_block *chunks[NP_ARENA_CHUNKS];
} np_arena;

/* One for all arenas; held for some loads and stores, seldom for a system call that does not wait. Taken across a fork. */
extern pthread_mutex_t np_arena_lock;

/* Takes over fd, a file of its own. Called with the lock. capacity: bytes to map, a multiple of 2 MiB; a file that cannot grow has so many. first: bytes at its beginning that
 * no block has. NULL: errno says why, and fd is still the caller's. */
np_arena *np_arena_open(int fd, size_t capacity, size_t first, bool backs);
void np_arena_close(np_arena *arena);

/* A block for size bytes, of which the header is the caller's to write; all of them 0 if zero is said. NULL: there is no room. */
np_block *np_arena_take(np_arena *arena, size_t size, bool zero);
/* The block is not in use any more. */
void np_arena_put(np_arena *arena, np_block *block);
/* Whether a block can have this size where it is, and it has it. Its header is the caller's to write. */
bool np_arena_resize(np_arena *arena, np_block *block, size_t size);
/* The block at an address; NULL: none begins there. Needs no lock for a block that is in use. */
np_block *np_arena_find(np_arena *arena, const void *pointer);
/* A descriptor of the file that holds the block, opened for reading only if that is said. -1: errno; EBADF: the
 * program has closed the arena's. */
int np_arena_export(np_arena *arena, np_block *block, bool readonly);

/* Bytes around an array's that it alone takes. */
static inline size_t np_block_around(size_t size)
{
	size_t grain = size > 65536 ? 4096 : 64;
	return sizeof(np_block) + ((size + grain - 1) & ~(grain - 1)) - size;
}

/* Around a fork, with the lock. */
void np_arena_before_fork(np_arena *arena);
void np_arena_after_fork(np_arena *arena);
void np_arena_in_child(np_arena *arena);
#endif
