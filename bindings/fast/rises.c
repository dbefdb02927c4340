/* Where the program was when a scope's maxima were reached: the stack of Python frames, for a scope that asked for it (PeakScope._note_stacks).
 *
 * A maximum rises in Go, inside a call that a Python thread waits for. So the thread looks at the open scopes when such a call returns, with the GIL, and
 * before any Python code runs. Another thread may be faster: its own call comes back while the one that raised the maximum still waits for the GIL, and is noted
 * in its place. The moment of a peak names the buffer that raised it. So an allocation leaves alone what another one did, and replaces what was noted of its own
 * peak meanwhile. Of a restore that raises the peak, and of `own` and `footprint`, the wrong one of several threads may be noted. */
#include "lane.h"
#include "rises.h"

enum { DEEPEST = 100 };

typedef struct place {
	PyObject *file, *function; /* str: letting go of them runs no code, which letting go of a code object may (weak references) */
	int line;
} place;

typedef struct stack {
	int64_t highest; /* the maximum that it belongs to */
	place *places;   /* innermost first; PyMem_Malloc'ed */
	int depth;
} stack;

struct tm_rises {
	const tm_scope *scope;
	tm_books *books;
	PyObject *until; /* the code whose frame is the last one that is of interest; NULL: all */
	stack stacks[TM_MAXIMA];
	struct tm_rises *next, **from;
};

tm_rises *tm_open_rises; /* under the GIL, as all of this */

static void forget(stack *stack)
{
	for (int i = 0; i < stack->depth; i++) {
		Py_DECREF(stack->places[i].file);
		Py_DECREF(stack->places[i].function);
	}
	PyMem_Free(stack->places);
	stack->places = NULL;
	stack->depth = 0;
}

static void add_place(stack *stack, PyFrameObject *frame, PyCodeObject *code)
{
	stack->places[stack->depth++] =
		(place){.file = Py_NewRef(code->co_filename), .function = Py_NewRef(code->co_qualname), .line = PyFrame_GetLineNumber(frame)};
}

/* The stack of the calling thread; an empty one where there is no memory for it. No Python code runs: frame objects are made, which on CPython 3.11 would begin a
 * collection now and then, so none runs meanwhile. */
static void note(stack *stack, int64_t highest, PyObject *until)
{
	forget(stack);
	stack->highest = highest;
	stack->places = PyMem_Malloc(DEEPEST * sizeof *stack->places);
	if (!stack->places) return;
	int collects = PyGC_Disable();
	PyFrameObject *frame = PyEval_GetFrame();
	Py_XINCREF(frame);
	while (frame && stack->depth < DEEPEST) {
		PyCodeObject *code = PyFrame_GetCode(frame);
		add_place(stack, frame, code);
		bool last = (PyObject *)code == until;
		PyFrameObject *back = last ? NULL : PyFrame_GetBack(frame);
		Py_DECREF(code); /* the frame has it, too */
		Py_DECREF(frame);
		frame = back;
	}
	Py_XDECREF(frame);
	if (collects) PyGC_Enable();
}

/* Whether the call has made a buffer; then *sequence is what the books counted it as. */
static bool made_buffer(const tm_call *call, uint64_t *sequence)
{
	if (call->code != TM_OK || (call->op != TM_OP_ALLOCATE && call->op != TM_OP_ADOPT)) return false;
	*sequence = ((const tm_record *)(uintptr_t)call->record)->sequence;
	return true;
}

static uint64_t read_maxima(const tm_rises *rises, int64_t maxima[TM_MAXIMA])
{
	tm_books_lock(rises->books);
	maxima[TM_MAXIMUM_PEAK] = rises->scope->peak;
	maxima[TM_MAXIMUM_OWN] = rises->scope->own;
	maxima[TM_MAXIMUM_FOOTPRINT] = rises->scope->footprint;
	uint64_t moment = rises->scope->moment;
	tm_books_unlock(rises->books);
	return moment;
}

void tm_note_rises(const tm_call *call)
{
	uint64_t sequence = 0;
	bool made = made_buffer(call, &sequence);
	for (tm_rises *rises = tm_open_rises; rises; rises = rises->next) {
		if (rises->books->device != call->device) continue;
		int64_t now[TM_MAXIMA];
		uint64_t moment = read_maxima(rises, now);
		for (int i = 0; i < TM_MAXIMA; i++) {
			/* What was brought back raises the peak only. */
			bool may_be_ours = i == TM_MAXIMUM_PEAK ? !made : made;
			bool is_ours = i == TM_MAXIMUM_PEAK && made && moment == sequence;
			if (now[i] > rises->stacks[i].highest ? may_be_ours || is_ours : is_ours) note(&rises->stacks[i], now[i], rises->until);
		}
	}
}

tm_rises *tm_rises_begin(const tm_scope *scope, PyObject *until)
{
	tm_rises *rises = PyMem_Calloc(1, sizeof *rises);
	if (!rises) return (tm_rises *)PyErr_NoMemory();
	rises->scope = scope;
	rises->books = scope->books;
	rises->until = Py_XNewRef(until);
	int64_t now[TM_MAXIMA];
	read_maxima(rises, now);
	for (int i = 0; i < TM_MAXIMA; i++) rises->stacks[i].highest = now[i];
	if ((rises->next = tm_open_rises)) tm_open_rises->from = &rises->next;
	rises->from = &tm_open_rises;
	tm_open_rises = rises;
	return rises;
}

void tm_rises_end(tm_rises *rises)
{
	if (!rises || !rises->from) return;
	if ((*rises->from = rises->next)) rises->next->from = rises->from;
	rises->from = NULL;
}

void tm_rises_free(tm_rises *rises)
{
	if (!rises) return;
	tm_rises_end(rises);
	for (int i = 0; i < TM_MAXIMA; i++) forget(&rises->stacks[i]);
	Py_XDECREF(rises->until);
	PyMem_Free(rises);
}

PyObject *tm_rises_stack(const tm_rises *rises, enum tm_maximum maximum)
{
	const stack *stack = rises ? &rises->stacks[maximum] : NULL;
	if (!stack || !stack->depth) Py_RETURN_NONE;
	int depth = stack->depth;
	PyObject *places = PyTuple_New(depth);
	for (int i = 0; places && i < depth; i++) {
		const place *place = &stack->places[i];
		PyObject *item = Py_BuildValue("(OiO)", place->file, place->line, place->function);
		if (item)
			PyTuple_SET_ITEM(places, i, item);
		else
			Py_CLEAR(places);
	}
	return places;
}
