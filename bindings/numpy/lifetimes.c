/* When blocks were made. Of the youngest that are measured it is known exactly. Of all older ones by the moments of every so many: they are NP_MOMENTS at most, and where the table is full, every other
 * is forgotten. What lies between two moments is taken to be spread evenly. So a long life is known to within the time in which 1/32768 of all allocations until now, or 64, were made. */
#include "lifetimes.h"

enum { NP_BIRTHS = 1 << 14, NP_MOMENTS = 1 << 16, NP_FIRST_STRIDE = 64 };

static uint64_t births[NP_BIRTHS];
static uint64_t moments[NP_MOMENTS]; /* of the numbers base, base + stride, base + 2 * stride, ... */
static uint64_t base, stride, count;
uint64_t np_births_next;

void np_births_begin(uint64_t first)
{
	base = first;
	stride = NP_FIRST_STRIDE;
	count = 0;
	np_births_next = first;
}

void np_births_keep(uint64_t sequence)
{
	uint64_t now = births[sequence % NP_BIRTHS] = np_ticks();
	if (sequence < np_births_next) return;
	if (count == NP_MOMENTS) {
		for (uint64_t i = 0; i < NP_MOMENTS / 2; i++) moments[i] = moments[2 * i];
		count = NP_MOMENTS / 2;
		stride *= 2; /* this number is the next one, since the table's size is even */
	}
	moments[count++] = now;
	np_births_next = base + count * stride;
}

uint64_t np_birth(uint64_t sequence, uint64_t newest, uint64_t now)
{
	if (newest - sequence < NP_BIRTHS) return births[sequence % NP_BIRTHS];
	uint64_t at = (sequence - base) / stride, past = (sequence - base) % stride;
	uint64_t from = moments[at], to = at + 1 < count ? moments[at + 1] : now;
	return to <= from ? from : from + (uint64_t)((double)(to - from) * (double)past / (double)stride);
}
