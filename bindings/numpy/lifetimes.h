/* How long blocks lived, roughly: when one was made is found by its sequence number, so that no block is larger for it. With the lock of the books, all of it. */
#ifndef NP_LIFETIMES_H
#define NP_LIFETIMES_H
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* A clock that costs next to nothing, in units of its own; who tells of it compares it with the system's clock. It may step back by a little between processors. */
static inline uint64_t np_ticks(void)
{
#if defined(__x86_64__)
	return __rdtsc();
#elif defined(__aarch64__)
	uint64_t now;
	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
	return now;
#else
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

/* Lifetimes are counted in buckets, two for each doubling: from 2 to 3 and from 3 to 4 times a power of two. The middle of a bucket is less than a quarter off. */
enum { NP_LIFETIMES = 96 };

static inline unsigned np_lifetime_bucket(uint64_t ticks)
{
	if (ticks < 2) return 0;
	unsigned power = 63 - (unsigned)__builtin_clzll(ticks), bucket = 2 * power + (unsigned)((ticks >> (power - 1)) & 1);
	return bucket < NP_LIFETIMES ? bucket : NP_LIFETIMES - 1;
}

static inline double np_lifetime_middle(unsigned bucket) { return (double)((uint64_t)1 << (bucket / 2)) * (bucket % 2 ? 1.75 : 1.25); }

/* Whether a block is among those whose life is measured: reading the clock takes longer than all that is counted, so of many blocks of a line it is one in 16, whichever. `before`: those that the
 * line has made so far. */
enum { NP_MEASURED_ALL = 64 };

static inline bool np_measures(int64_t before, uint64_t sequence) { return before < NP_MEASURED_ALL || (sequence * 0x9E3779B97F4A7C15u) >> 60 == 0; }

/* From np_births_begin on each block is told of, in the order of the sequence numbers, without gaps; measured: its life will be. */
void np_births_begin(uint64_t first);
extern uint64_t np_births_next; /* the next one whose moment is kept, measured or not */
void np_births_keep(uint64_t sequence);

static inline void np_births_add(uint64_t sequence, bool measured)
{
	if (measured || sequence >= np_births_next) np_births_keep(sequence);
}

/* When a block was made that is measured; newest: the last one's number. */
uint64_t np_birth(uint64_t sequence, uint64_t newest, uint64_t now);
#endif
