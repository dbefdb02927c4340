/* Which line of Python allocates.
 *
 * The frame is the interpreter's own: the frame objects of the public API have to be made, which on Python 3.11 starts the garbage collector, and that must not happen inside a handler. What was
 * found out about a code object (is it skipped, which number has the line of which instruction) is in one of its extra slots and ends with it. */
#include "frames.h"
#include "sites.h"
#include "tracker.h"
#include <stdlib.h>
#include <string.h>

/* ---- what CPython's versions call by other names */

#if PY_VERSION_HEX >= 0x030C0000
#define REQUEST_EXTRA PyUnstable_Eval_RequestCodeExtraIndex
#define SET_EXTRA PyUnstable_Code_SetExtra
#else
#define REQUEST_EXTRA _PyEval_RequestCodeExtraIndex
#define SET_EXTRA _PyCode_SetExtra
#endif

#if PY_VERSION_HEX < 0x030C0000
/* This thread's state. It stays right: whoever lost his state is not in NumPy any more, and gets another one before he is again. */
static __thread PyThreadState *mine __attribute__((tls_model("initial-exec")));

static __attribute__((noinline)) PyThreadState *look_for_state(PyThreadState *has_gil)
{
	mine = PyGILState_GetThisThreadState();
	return mine == has_gil ? mine : NULL;
}
#endif

/* This thread's state if it has the GIL, else NULL. */
static inline PyThreadState *own_state(void)
{
#if PY_VERSION_HEX >= 0x030D0000
	return PyThreadState_GetUnchecked();
#elif PY_VERSION_HEX >= 0x030C0000
	return _PyThreadState_UncheckedGet(); /* of this thread */
#else
	PyThreadState *has_gil = _PyThreadState_UncheckedGet(); /* of any */
	return NP_LIKELY(has_gil && has_gil == mine) ? has_gil : has_gil ? look_for_state(has_gil) : NULL;
#endif
}

/* ---- lines; all with the GIL */

typedef struct site {
	PyObject *file, *function; /* str; the function is the one that was seen first on this line */
	int line;
} site;

#define SLOTS (2u * NP_MOST_SITES)
static site sites[NP_MOST_SITES];
static uint32_t site_count = NP_FIRST_SITE;
static uint16_t slots[SLOTS]; /* numbers by hash; 0: free */
_Static_assert(NP_MOST_SITES <= UINT16_MAX, "numbers fit into a slot");

uint32_t np_site_count(void) { return site_count; }

static uint32_t site_of(PyCodeObject *code, int instruction)
{
	int line = PyCode_Addr2Line(code, instruction);
	if (line < 0) line = code->co_firstlineno; /* the compiler's own instruction */
	uint64_t hash = ((uint64_t)PyObject_Hash(code->co_filename) ^ (uint64_t)line * 0xC2B2AE3D27D4EB4FULL) * 0x9E3779B97F4A7C15ULL;
	uint32_t at = (uint32_t)(hash >> 40) % SLOTS;
	for (; slots[at]; at = (at + 1) % SLOTS) { /* half of them are free at least */
		const site *known = &sites[slots[at]];
		if (known->line == line && (known->file == code->co_filename || PyUnicode_Compare(known->file, code->co_filename) == 0)) return slots[at];
	}
	if (site_count == NP_MOST_SITES || !np_tracker_has_room(site_count)) return NP_SITE_OTHER;
	sites[site_count] = (site){Py_NewRef(code->co_filename), Py_NewRef(code->co_qualname), line};
	slots[at] = (uint16_t)site_count;
	return site_count++;
}

/* ---- code that is skipped */

static char **skipped; /* beginnings of file names */
static size_t skipped_count;
static uint32_t generation = 1; /* of that list; never 0 */

static bool is_skipped(PyCodeObject *code)
{
	Py_ssize_t length;
	const char *name = PyUnicode_AsUTF8AndSize(code->co_filename, &length);
	if (!name) PyErr_Clear(); /* a name that is no text is in no list */
	for (size_t i = 0; name && i < skipped_count; i++) {
		size_t its = strlen(skipped[i]);
		if (its <= (size_t)length && !memcmp(name, skipped[i], its)) return true;
	}
	return false;
}

/* ---- what is known of a code object */

typedef struct lines {
	uint32_t generation; /* of `is_skipped` */
	bool is_skipped;
	uint32_t count, mask; /* of the slots; a third of them is free at least */
	struct {
		int32_t instruction;
		uint32_t site; /* 0: free */
	} slots[];
} lines;

static Py_ssize_t extra_index;

/* What co_extra points to, which CPython does not publish; np_sites_init looks whether it is so. */
typedef struct extras {
	Py_ssize_t count;
	void *each[];
} extras;

static inline lines *known_of(PyCodeObject *code)
{
	const extras *all = code->co_extra;
	return all && all->count > extra_index ? all->each[extra_index] : NULL;
}

static lines *make_lines(uint32_t room)
{
	lines *made = calloc(1, sizeof *made + room * sizeof made->slots[0]);
	if (made) made->mask = room - 1;
	return made;
}

static void put(lines *in, int instruction, uint32_t number)
{
	uint32_t at = ((uint32_t)instruction / sizeof(_Py_CODEUNIT)) & in->mask;
	while (in->slots[at].site) at = (at + 1) & in->mask;
	in->slots[at].instruction = instruction;
	in->slots[at].site = number;
	in->count++;
}

/* Gives the code object other lines; what it had is freed (CPython calls free on it). */
static bool attach(PyCodeObject *code, lines *made)
{
	if (!made) return false;
	if (SET_EXTRA((PyObject *)code, extra_index, made) == 0) return true;
	free(made);
	return false;
}

/* Asks of a code object whether it is skipped, for the first time or since the list changed. NULL: no memory. */
static __attribute__((noinline, cold)) lines *learn(PyCodeObject *code, lines *known)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback); /* of who allocates */
	if (!known && attach(code, known = make_lines(4)) == false) known = NULL;
	if (known) {
		known->is_skipped = is_skipped(code);
		known->generation = generation;
	}
	PyErr_Restore(type, value, traceback);
	return known;
}

static __attribute__((noinline, cold)) uint32_t add_line(PyCodeObject *code, lines *known, int instruction)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	uint32_t number = site_of(code, instruction);
	if (number == NP_SITE_OTHER) goto done; /* it may have been for want of memory: ask again the next time */
	if (3 * (known->count + 1) > 2 * (known->mask + 1)) {
		lines *larger = make_lines(2 * (known->mask + 1));
		if (!larger) goto done;
		larger->generation = known->generation;
		larger->is_skipped = known->is_skipped;
		for (uint32_t i = 0; i <= known->mask; i++)
			if (known->slots[i].site) put(larger, known->slots[i].instruction, known->slots[i].site);
		put(larger, instruction, number);
		attach(code, larger);
	} else {
		put(known, instruction, number);
	}
done:
	PyErr_Restore(type, value, traceback);
	return number;
}

static inline uint32_t line_of(np_frame *frame, PyCodeObject *code, lines *known)
{
	int instruction = np_instruction(frame);
	for (uint32_t at = ((uint32_t)instruction / sizeof(_Py_CODEUNIT)) & known->mask; known->slots[at].site; at = (at + 1) & known->mask)
		if (known->slots[at].instruction == instruction) return known->slots[at].site;
	return add_line(code, known, instruction);
}

/* From this frame outwards, where the innermost one does not answer at once. */
static __attribute__((noinline)) uint32_t look_outwards(np_frame *frame)
{
	enum { DEEPEST = 64 }; /* frames of skipped code in a row */
	np_frame *outermost = NULL;
	for (int depth = 0; frame && depth < DEEPEST; frame = frame->previous, depth++) {
		if (!np_runs(frame)) continue;
		PyCodeObject *code = np_code(frame);
		lines *known = known_of(code);
		if (NP_UNLIKELY(!known || known->generation != generation) && !(known = learn(code, known))) return NP_SITE_OTHER;
		if (!known->is_skipped) return line_of(frame, code, known);
		outermost = frame;
	}
	if (!outermost) return NP_SITE_NO_LINE;
	lines *known = known_of(np_code(outermost)); /* nobody else called: then what is farthest out */
	return known ? line_of(outermost, np_code(outermost), known) : NP_SITE_OTHER;
}

uint32_t np_site_now(void)
{
	PyThreadState *state = own_state();
	if (NP_UNLIKELY(!state)) return NP_SITE_NO_LINE;
	np_frame *frame = np_innermost(state);
	if (NP_LIKELY(frame && np_runs(frame))) {
		PyCodeObject *code = np_code(frame);
		lines *known = known_of(code);
		if (NP_LIKELY(known && known->generation == generation && !known->is_skipped)) return line_of(frame, code, known);
	}
	return look_outwards(frame);
}

/* ---- for Python */

static PyObject *site_name(PyObject *module, PyObject *value)
{
	unsigned long number = PyLong_AsUnsignedLong(value);
	if (number == (unsigned long)-1 && PyErr_Occurred()) return NULL;
	if (number < NP_FIRST_SITE || number >= site_count) Py_RETURN_NONE;
	return Py_BuildValue("(OiO)", sites[number].file, sites[number].line, sites[number].function);
}

static PyObject *set_site_skip(PyObject *module, PyObject *beginnings)
{
	if (!PyTuple_Check(beginnings)) return PyErr_Format(PyExc_TypeError, "set_site_skip: a tuple of str, not %.100s", Py_TYPE(beginnings)->tp_name);
	size_t count = (size_t)PyTuple_GET_SIZE(beginnings), filled = 0;
	char **made = calloc(count + 1, sizeof *made);
	if (!made) return PyErr_NoMemory();
	for (; filled < count; filled++) {
		PyObject *one = PyTuple_GET_ITEM(beginnings, (Py_ssize_t)filled);
		const char *text = PyUnicode_Check(one) ? PyUnicode_AsUTF8(one) : NULL;
		if (!text && !PyErr_Occurred()) PyErr_Format(PyExc_TypeError, "set_site_skip: a file name begins with a str, not %.100s", Py_TYPE(one)->tp_name);
		if (!text) break;
		if (!(made[filled] = strdup(text))) {
			PyErr_NoMemory();
			break;
		}
	}
	char **gone = filled == count ? skipped : made;
	size_t gone_count = filled == count ? skipped_count : filled;
	if (filled == count) {
		skipped = made;
		skipped_count = count;
		if (!++generation) generation = 1;
	}
	for (size_t i = 0; i < gone_count; i++) free(gone[i]);
	free(gone);
	if (filled < count) return NULL;
	Py_RETURN_NONE;
}

int np_sites_init(void)
{
	extra_index = REQUEST_EXTRA(free);
	if (extra_index < 0) {
		if (!PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, "tack_memory: no extra slot of code objects is left: too many debuggers and profilers are loaded");
		return -1;
	}
	PyCodeObject *code = PyCode_NewEmpty("tack_memory", "probe", 1);
	lines *given = code ? make_lines(4) : NULL;
	bool is_known = attach(code, given) && known_of(code) == given;
	Py_XDECREF(code);
	if (is_known) return 0;
	if (!PyErr_Occurred()) PyErr_SetString(PyExc_ImportError, given ? "tack_memory: the extra slots of code objects are not where CPython 3.11 to 3.13 have them" : "tack_memory: no memory");
	return -1;
}

PyMethodDef np_sites_methods[] = {
	{"site_name", site_name, METH_O, "site_name(number, /)\n--\n\n(file, line, function) of a line's number; None: it is no line's."},
	{"set_site_skip", set_site_skip, METH_O,
		"set_site_skip(beginnings, /)\n--\n\nCode in files whose names begin with one of these does not allocate: its caller does."},
	{NULL},
};
