/* Counting in a device's books from C: where Go does not count (the CPU in a forked child, NumPy's own arrays). gomem/books.go has the same rules in Go and says
 * what the figures mean. Knows nothing of Python. */
#ifndef TM_BOOKS_H
#define TM_BOOKS_H
#include <sched.h>
#include <stdbool.h>
#include "tm_shared.h"

/* The leaf lock of the books: held for some loads and stores, never across anything that can block. Needs no GIL. */
static __attribute__((noinline, cold, unused)) void tm_books_lock_slow(tm_books *books)
{
	for (int tries = 0;; tries++) {
		uint32_t free = 0;
		if (__atomic_load_n(&books->lock, __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(&books->lock, &free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return;
		if (tries > 64) sched_yield(); /* its holder lost its processor */
	}
}

static inline void tm_books_lock(tm_books *books)
{
	uint32_t free = 0;
	if (__builtin_expect(!__atomic_compare_exchange_n(&books->lock, &free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED), 0)) tm_books_lock_slow(books);
}

static inline void tm_books_unlock(tm_books *books) { __atomic_store_n(&books->lock, 0, __ATOMIC_RELEASE); }

/* As Books.bornLocked: counts a new block and returns its sequence number. The rise and all maxima are one step under the lock, so peaks are exact. */
static inline uint64_t tm_books_born(tm_books *books, int64_t nbytes)
{
	uint64_t sequence = ++books->sequence;
	books->allocate_count++;
	books->in_use += nbytes;
	if (books->in_use > books->peak) books->peak = books->in_use;
	if (books->budget >= 0 && books->in_use > books->budget) books->over_budget_count++;
	for (tm_scope *scope = books->scopes; scope; scope = scope->next) {
		scope->own_now += nbytes; /* every open scope was opened before this block was made */
		if (scope->own_now > scope->own) scope->own = scope->own_now;
		if (books->in_use > scope->peak) {
			scope->peak = books->in_use;
			scope->moment = sequence;
		}
		if (books->in_use + books->spilled > scope->footprint) scope->footprint = books->in_use + books->spilled;
	}
	return sequence;
}

/* A block that was in use is let go: in_use falls, and as Books.goneLocked it leaves the scopes that it is an own block of. */
static inline void tm_books_gone(tm_books *books, int64_t nbytes, uint64_t sequence)
{
	books->in_use -= nbytes;
	books->free_count++;
	for (tm_scope *scope = books->scopes; scope; scope = scope->next)
		if (sequence > scope->sequence) scope->own_now -= nbytes;
}

#endif
