/* Who tracks lines.
 *
 * Each tracker has a table of its own, by the number of the line. A block counts for a tracker when it was made, or last resized, after the tracker began: when its sequence number is higher than
 * the one at that time.
 *
 * What was live at the peak, line by line, is exact without copying the table at each new peak. The peaks are numbered. A line has the number of one of them, and what it had live then:
 *
 *     if tally.peak_number == tracker.peak_number, it had tally.at_peak live at the last peak;
 *     else it has not changed since the last peak, and had tally.live.
 *
 * It stays so because a line is settled before each change: where it does not have the last peak's number, what it has live becomes at_peak, with that number. A new peak only gets the
 * next number. */
#ifndef __clang__
/* Two figures side by side, changed one by one and read soon after as one vector, would have to wait until both are out of the processor's store buffer. */
#pragma GCC optimize("no-tree-slp-vectorize")
#endif
#include "np.h"
#include "lifetimes.h"
#include "numpy_books.h"
#include "tracker.h"
#include <stdlib.h>
#include <string.h>

enum { FREERS = 4, PART = 64, PARTS = NP_MOST_SITES / PART };

/* What one line did. */
typedef struct tally {
	int64_t live, live_count;
	uint64_t peak_number;
	int64_t at_peak, at_peak_count;
	int64_t peak;    /* the most that `live` was */
	int64_t new_count, resize_count, free_count;
	int64_t total;   /* bytes of all allocations and resizes */
	int64_t largest;
	struct {
		uint32_t site; /* 0: free */
		uint32_t count;
	} freers[FREERS]; /* lines that freed; that of the fewest makes room for another one, and what it had goes to the rest */
	int64_t freers_rest;
	uint32_t lifetimes[NP_LIFETIMES];
} tally;

typedef struct moment {
	uint64_t ticks;
	double seconds; /* of the system's clock */
} moment;

typedef struct tracker {
	struct tracker *next;
	bool open;
	size_t threshold;
	uint64_t first;        /* the sequence number when it began */
	int64_t in_use_first, failed_first;
	int64_t peak;          /* the most that was in use, with blocks from before it began */
	uint64_t peak_number;
	uint64_t peak_ticks;
	uint32_t peak_site;    /* whose allocation reached it; 0: it was there when it began */
	moment began;
	/* As of its end: */
	moment ended;
	int64_t in_use, failed;
	tally *parts[PARTS];   /* those of all lines that are there: made with the line (np_tracker_has_room), so that no handler needs memory under the lock */
} tracker;

np_tracking np_tracks = {.least = SIZE_MAX};

static tracker *trackers; /* changed with the GIL and the lock of the books */

static inline tally *tally_of(tracker *in, uint32_t row)
{
	return &in->parts[row / PART][row % PART];
}

static inline uint32_t row_of(const tracker *in, uint32_t site, size_t size) { return size < in->threshold ? NP_SITE_SMALL : site; }

static inline void settle(const tracker *of, tally *one)
{
	if (one->peak_number == of->peak_number) return;
	one->peak_number = of->peak_number;
	one->at_peak = one->live;
	one->at_peak_count = one->live_count;
}

static inline void enter(tracker *into, tally *one, uint32_t row, size_t size)
{
	one->live += (int64_t)size;
	one->live_count++;
	one->total += (int64_t)size;
	if (one->live > one->peak) one->peak = one->live;
	if ((int64_t)size > one->largest) one->largest = (int64_t)size;
	if (np_the_books.memory.in_use <= into->peak) return;
	into->peak = np_the_books.memory.in_use;
	into->peak_number++;
	into->peak_ticks = np_ticks();
	into->peak_site = row;
}

static inline void leave(tally *one, size_t size)
{
	one->live -= (int64_t)size;
	one->live_count--;
}

np_mark np_track_new(uint32_t site, size_t size, uint64_t sequence)
{
	if (NP_UNLIKELY(!site)) site = NP_SITE_NO_LINE; /* it was made without the GIL while somebody began to track */
	bool measured = false;
	for (tracker *each = trackers; each; each = each->next) {
		uint32_t row = row_of(each, site, size);
		tally *one = tally_of(each, row);
		measured |= np_measures(one->new_count, sequence);
		settle(each, one);
		one->new_count++;
		enter(each, one, row, size);
	}
	np_births_add(sequence, measured);
	return (np_mark){site, measured};
}

static inline void count_freer(tally *of, uint32_t where)
{
	unsigned least = 0;
	for (unsigned i = 0; i < FREERS; i++) {
		if (of->freers[i].site == where || !of->freers[i].site) {
			of->freers[i].site = where;
			if (of->freers[i].count < UINT32_MAX) of->freers[i].count++;
			return;
		}
		if (of->freers[i].count < of->freers[least].count) least = i;
	}
	of->freers_rest += of->freers[least].count;
	of->freers[least].site = where;
	of->freers[least].count = 1;
}

void np_track_free(np_mark mark, size_t size, uint64_t sequence, uint32_t where)
{
	for (tracker *each = trackers; each; each = each->next) {
		if (sequence <= each->first) continue;
		tally *one = tally_of(each, row_of(each, mark.site, size));
		settle(each, one);
		leave(one, size);
		one->free_count++;
		if (NP_LIKELY(!mark.measured)) continue;
		uint64_t now = np_ticks(), born = np_birth(sequence, np_the_books.memory.sequence, now);
		unsigned bucket = np_lifetime_bucket(now > born ? now - born : 0);
		if (one->lifetimes[bucket] < UINT32_MAX) one->lifetimes[bucket]++;
		if (where != NP_SITE_SMALL) count_freer(one, where ? where : NP_SITE_NO_LINE);
	}
}

np_mark np_track_resize(np_mark mark, size_t size_before, uint64_t before, size_t size, uint64_t sequence, uint32_t now)
{
	bool unknown = mark.site == NP_SITE_NONE || mark.site == NP_SITE_SMALL;
	np_mark since = {unknown ? (now ? now : NP_SITE_NO_LINE) : mark.site, mark.measured || unknown};
	np_births_add(sequence, since.measured);
	for (tracker *each = trackers; each; each = each->next) {
		if (before > each->first) {
			tally *one = tally_of(each, row_of(each, mark.site, size_before));
			settle(each, one);
			leave(one, size_before);
		}
		uint32_t row = row_of(each, since.site, size);
		tally *one = tally_of(each, row);
		settle(each, one);
		one->resize_count++;
		enter(each, one, row, size);
	}
	return since;
}

/* ---- places for lines; with the GIL */

static bool make_part(tracker *in, uint32_t part)
{
	return in->parts[part] || (in->parts[part] = calloc(PART, sizeof(tally)));
}

bool np_tracker_has_room(uint32_t site)
{
	for (tracker *each = trackers; each; each = each->next)
		if (!make_part(each, site / PART)) return false;
	return true;
}

/* ---- beginning and ending */

#define CAPSULE "tack_memory.numpy_tracker"

static void look_at_clocks(moment *out)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	out->ticks = np_ticks();
	out->seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* With the GIL and the lock. */
static void set_tracks(void)
{
	size_t least = SIZE_MAX;
	for (tracker *each = trackers; each; each = each->next)
		if (each->threshold < least) least = each->threshold;
	__atomic_store_n(&np_tracks.least, least, __ATOMIC_RELAXED);
	__atomic_store_n(&np_tracks.on, trackers != NULL, __ATOMIC_RELAXED);
}

static void end(tracker *one)
{
	if (!one->open) return;
	tm_books_lock(&np_the_books.memory);
	for (tracker **at = &trackers; *at; at = &(*at)->next)
		if (*at == one) {
			*at = one->next;
			break;
		}
	one->open = false;
	one->in_use = np_the_books.memory.in_use;
	one->failed = np_the_books.failed_count;
	set_tracks();
	tm_books_unlock(&np_the_books.memory);
	look_at_clocks(&one->ended);
}

static void forget(tracker *one)
{
	for (unsigned part = 0; part < PARTS; part++) free(one->parts[part]);
	free(one);
}

static void destroy(PyObject *capsule)
{
	tracker *one = PyCapsule_GetPointer(capsule, CAPSULE);
	end(one);
	forget(one);
}

static PyObject *track(PyObject *module, PyObject *value)
{
	size_t threshold = PyLong_AsSize_t(value);
	if (threshold == (size_t)-1 && PyErr_Occurred()) return NULL;
	tracker *one = calloc(1, sizeof *one);
	if (!one) return PyErr_NoMemory();
	one->threshold = threshold;
	PyObject *capsule = PyCapsule_New(one, CAPSULE, destroy);
	if (!capsule) {
		free(one);
		return NULL;
	}
	/* From here to the lock no Python code runs, so no line comes in between. */
	for (uint32_t part = 0; part <= (np_site_count() - 1) / PART; part++)
		if (!make_part(one, part)) {
			Py_DECREF(capsule);
			return PyErr_NoMemory();
		}
	look_at_clocks(&one->began);
	tm_books_lock(&np_the_books.memory);
	one->first = np_the_books.memory.sequence;
	one->peak = one->in_use_first = np_the_books.memory.in_use;
	one->peak_ticks = one->began.ticks;
	one->failed_first = np_the_books.failed_count;
	one->open = true;
	if (!trackers) np_births_begin(one->first + 1);
	one->next = trackers;
	trackers = one;
	set_tracks();
	tm_books_unlock(&np_the_books.memory);
	return capsule;
}

static PyObject *end_track(PyObject *module, PyObject *capsule)
{
	tracker *one = PyCapsule_GetPointer(capsule, CAPSULE);
	if (!one) return NULL;
	end(one);
	Py_RETURN_NONE;
}

/* ---- reading */

/* The middle of the bucket in which the median is, in ticks; negative: nothing was freed. */
static double median_lifetime(const tally *of)
{
	uint64_t count = 0, below = 0;
	for (unsigned i = 0; i < NP_LIFETIMES; i++) count += of->lifetimes[i];
	for (unsigned i = 0; i < NP_LIFETIMES; i++)
		if (of->lifetimes[i] && (below += of->lifetimes[i]) * 2 >= count) return np_lifetime_middle(i);
	return -1;
}

static PyObject *told(uint32_t row, const tally *of, uint64_t peak_number, double second)
{
	bool settled = of->peak_number == peak_number;
	PyObject *freers = PyTuple_New(0);
	for (unsigned i = 0; freers && i < FREERS && of->freers[i].site; i++) {
		PyObject *longer = PyTuple_New((Py_ssize_t)i + 1);
		for (unsigned k = 0; longer && k < i; k++) PyTuple_SET_ITEM(longer, k, Py_NewRef(PyTuple_GET_ITEM(freers, k)));
		Py_DECREF(freers);
		freers = longer;
		PyObject *one = freers ? Py_BuildValue("(II)", of->freers[i].site, of->freers[i].count) : NULL;
		if (freers && !one) Py_CLEAR(freers);
		if (freers) PyTuple_SET_ITEM(freers, i, one);
	}
	if (!freers) return NULL;
	double median = median_lifetime(of);
	PyObject *lifetime = median < 0 ? Py_NewRef(Py_None) : PyFloat_FromDouble(median * second);
	return Py_BuildValue("(ILLLLLLLLLLNNL)", row, (long long)of->live, (long long)of->live_count, (long long)of->peak,
		(long long)(settled ? of->at_peak : of->live), (long long)(settled ? of->at_peak_count : of->live_count), (long long)of->new_count,
		(long long)of->resize_count, (long long)of->free_count, (long long)of->total, (long long)of->largest, lifetime, freers, (long long)of->freers_rest);
}

static PyObject *read_track(PyObject *module, PyObject *capsule)
{
	tracker *one = PyCapsule_GetPointer(capsule, CAPSULE);
	if (!one) return NULL;
	unsigned parts = 0;
	while (parts < PARTS && one->parts[parts]) parts++;
	tally *copy = malloc(parts * PART * sizeof *copy);
	if (!copy) return PyErr_NoMemory();
	memset(copy, 1, parts * PART * sizeof *copy); /* the kernel's page faults come now, not under the lock */
	tracker now;
	moment seen;
	look_at_clocks(&seen);
	tm_books_lock(&np_the_books.memory); /* one moment for all figures; with the GIL, so hardly anybody waits */
	now = *one;
	if (one->open) {
		now.in_use = np_the_books.memory.in_use;
		now.failed = np_the_books.failed_count;
		now.ended = seen;
	}
	for (unsigned part = 0; part < parts; part++) memcpy(copy + part * PART, one->parts[part], PART * sizeof *copy);
	tm_books_unlock(&np_the_books.memory);

	double ticks = (double)(now.ended.ticks - now.began.ticks), seconds = now.ended.seconds - now.began.seconds;
	double second = ticks > 0 && seconds > 0 ? seconds / ticks : 1e-9; /* of one tick */
	PyObject *rows = PyList_New(0);
	for (uint32_t row = 0; rows && row < parts * PART; row++) {
		if (!copy[row].new_count && !copy[row].resize_count) continue;
		PyObject *line = told(row, &copy[row], now.peak_number, second);
		if (!line || PyList_Append(rows, line)) Py_CLEAR(rows);
		Py_XDECREF(line);
	}
	free(copy);
	if (!rows) return NULL;
	int64_t past = (int64_t)(now.peak_ticks - now.began.ticks);
	return Py_BuildValue("((LLLLIddO)N)", (long long)now.in_use, (long long)now.peak, (long long)now.in_use_first, (long long)(now.failed - now.failed_first),
		now.peak_site, past > 0 ? (double)past * second : 0.0, seconds, now.open ? Py_True : Py_False, rows);
}

PyMethodDef np_tracker_methods[] = {
	{"track", track, METH_O, "track(threshold, /)\n--\n\nBegins to count by line, and returns what ends and reads that. Smaller blocks are counted all together."},
	{"end_track", end_track, METH_O, "end_track(track, /)\n--\n\nEnds it; its figures stay. Does nothing where it has ended."},
	{"read_track", read_track, METH_O,
		"read_track(track, /)\n--\n\n((in_use, peak, in_use_first, failed, peak_site, peak_after, seconds, open), rows) of one moment; a row is (site, live, live_count, peak, at_peak,\n"
		"at_peak_count, allocations, resizes, frees, bytes, largest, median lifetime in seconds or None, ((site, frees), ...), frees elsewhere)."},
	{NULL},
};
