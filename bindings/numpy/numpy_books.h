/* The books of NumPy's array memory: those of a device (tm_shared.h), so that memory_info and peak scopes work on them as on any other, and what a device has not.
 *
 * One lock, two for an array's life, is cheaper than an atomic add for each figure, and makes the peaks exact. Its holders never wait for anything. */
#ifndef NP_BOOKS_H
#define NP_BOOKS_H
#include "books.h"
#include "header.h"
#include "tracker.h"

typedef struct np_books {
	tm_books memory;         /* in_use: bytes asked for; reserved: what lies around them, headers and alignment; a resize counts as a free and an allocation */
	int64_t resize_count;
	int64_t failed_count;    /* requests that got no memory */
	int64_t unknown_count;   /* frees and resizes of memory that no handler of ours has given */
	int64_t inherited;       /* bytes of arrays alive that were made before the fork that made this process */
	int64_t inherited_count;
	uint64_t forked_at;      /* sequence at that fork */
} np_books;

extern np_books np_the_books;

/* With the lock: the whole sequence number of a block that is alive. Exact as long as it is among the last 2**44. */
static inline uint64_t np_sequence(const np_header *header)
{
	uint64_t now = np_the_books.memory.sequence;
	return now - ((now - header->sequence) & (((uint64_t)1 << NP_SEQUENCE_BITS) - 1));
}

/* A block was made, and lies inside `around` bytes that no array sees. Writes its header. */
static inline void np_count_new(np_header *header, size_t size, size_t around)
{
	tm_books *books = &np_the_books.memory;
	np_mark mark = {.site = np_tracked() ? np_site_for(size) : NP_SITE_NONE};
	tm_books_lock(books);
	uint64_t sequence = tm_books_born(books, (int64_t)size);
	books->reserved += (int64_t)around;
	if (np_tracked()) mark = np_track_new(mark.site, size, sequence);
	tm_books_unlock(books);
	*header = (np_header){.size = size, .magic = NP_LIVE, .sequence = sequence, .site = mark.site, .measured = mark.measured};
}

/* With the lock. Returns the sequence number of the block. */
static inline uint64_t np_leaves(const np_header *header, size_t around)
{
	uint64_t sequence = np_sequence(header);
	tm_books_gone(&np_the_books.memory, (int64_t)header->size, sequence);
	np_the_books.memory.reserved -= (int64_t)around;
	if (__builtin_expect(sequence <= np_the_books.forked_at, 0)) {
		np_the_books.inherited -= (int64_t)header->size;
		np_the_books.inherited_count--;
	}
	return sequence;
}

/* A block is about to be freed. Its header says so from now on. */
static inline void np_count_gone(np_header *header, size_t around)
{
	uint32_t where = np_tracked() && header->measured ? np_site_for(header->size) : NP_SITE_NONE;
	tm_books_lock(&np_the_books.memory);
	uint64_t sequence = np_leaves(header, around);
	if (np_tracked()) np_track_free((np_mark){header->site, header->measured}, header->size, sequence, where);
	tm_books_unlock(&np_the_books.memory);
	header->magic = NP_DEAD;
}

/* A block has another size, in its place or elsewhere: `before` is a copy of the header that it had. Writes the new one. To peak scopes it is a new block: all of it was
 * asked for inside them. */
static inline void np_count_resized(np_header *header, const np_header *before, size_t around_before, size_t size, size_t around)
{
	tm_books *books = &np_the_books.memory;
	np_mark mark = {before->site, before->measured};
	uint32_t now = np_tracked() && (mark.site == NP_SITE_NONE || mark.site == NP_SITE_SMALL) ? np_site_for(size) : NP_SITE_NONE;
	tm_books_lock(books);
	uint64_t sequence_before = np_leaves(before, around_before), sequence = tm_books_born(books, (int64_t)size);
	books->reserved += (int64_t)around;
	np_the_books.resize_count++;
	if (np_tracked()) mark = np_track_resize(mark, before->size, sequence_before, size, sequence, now);
	tm_books_unlock(books);
	*header = (np_header){.size = size, .magic = NP_LIVE, .sequence = sequence, .site = mark.site, .measured = mark.measured};
}

/* Always NULL. old: the block that was to be resized, which stays as it is; or NULL. */
void *np_count_failed(void *old, size_t old_size, size_t size, uint32_t site);
void np_count_unknown(void);
#endif
