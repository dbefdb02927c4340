/* The memory that hooks allocated: its allocation was not told, so nothing is told of it until it ends. Else a hook that allocates would be called for that, and so on
 * without end. Where the last hook of a domain goes, nobody hears of that end: its addresses are forgotten then, or they would be untold for whoever has them next.
 * A set of addresses with open addressing; mostly it is empty. */
#include "module.h"

static struct {
	uint64_t *keys; /* 0: free */
	size_t room, count;
} set;

/* Addresses of user space have no bits up there, so a key tells its domain again. */
#define DOMAIN_SHIFT 60
static uint64_t key_of(unsigned domain, const void *address) { return (uint64_t)(uintptr_t)address ^ ((uint64_t)(domain + 1) << DOMAIN_SHIFT); }
static unsigned domain_of(uint64_t key) { return (unsigned)(key >> DOMAIN_SHIFT) - 1; }

static size_t place_of(uint64_t key) { return (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & (set.room - 1); }

static size_t find(uint64_t key)
{
	size_t at = place_of(key);
	while (set.keys[at] && set.keys[at] != key) at = (at + 1) & (set.room - 1);
	return at;
}

static bool grow(void)
{
	size_t room = set.room ? 2 * set.room : 64, old_room = set.room;
	uint64_t *keys = calloc(room, sizeof *keys), *old = set.keys;
	if (!keys) return false;
	set.keys = keys;
	set.room = room;
	for (size_t i = 0; i < old_room; i++)
		if (old[i]) set.keys[find(old[i])] = old[i];
	free(old);
	return true;
}

bool tm_untold_add(unsigned domain, const void *address)
{
	if (2 * (set.count + 1) > set.room && !grow()) return false;
	uint64_t key = key_of(domain, address);
	size_t at = find(key);
	if (!set.keys[at]) set.count++;
	set.keys[at] = key;
	return true;
}

bool tm_untold_take(unsigned domain, const void *address)
{
	if (TM_LIKELY(!set.count)) return false;
	size_t hole = find(key_of(domain, address));
	if (!set.keys[hole]) return false;
	set.keys[hole] = 0;
	set.count--;
	/* What follows without a gap and was pushed away from its place moves up, so that a search never ends too early. */
	for (size_t at = (hole + 1) & (set.room - 1); set.keys[at]; at = (at + 1) & (set.room - 1)) {
		size_t wanted = place_of(set.keys[at]);
		if (((at - wanted) & (set.room - 1)) < ((at - hole) & (set.room - 1))) continue;
		set.keys[hole] = set.keys[at];
		set.keys[at] = 0;
		hole = at;
	}
	return true;
}

void tm_untold_forget(unsigned domains)
{
	if (!domains || !set.count) return;
	size_t kept = 0;
	for (size_t i = 0; i < set.room; i++) kept += set.keys[i] && !(domains & (1u << domain_of(set.keys[i])));
	uint64_t *keys = kept ? calloc(set.room, sizeof *keys) : NULL, *old = set.keys;
	if (kept && !keys) return; /* no memory: they stay untold, which is wrong for those that are used again, but loses nothing else */
	size_t old_room = set.room;
	set.keys = keys;
	set.count = kept;
	if (!kept) set.room = 0;
	for (size_t i = 0; kept && i < old_room; i++)
		if (old[i] && !(domains & (1u << domain_of(old[i])))) set.keys[find(old[i])] = old[i];
	free(old);
}
