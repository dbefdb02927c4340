/* `with label("temporary"):`: what is allocated inside has this label.
 *
 * Blocks belong to a context of contextvars: each thread has one of its own, and so has each asyncio task, so that tasks whose blocks overlap on one thread do not
 * label one another's buffers. The context variable has the block entered last; blocks know the one outside of them. Blocks that overlap need not be left in the
 * order of their entries, nor in the context in which they were entered, and a context may be a copy of another: so a block that is left is marked as left for whoever
 * still has it, and passed over from then on.
 *
 * Entry and exit are one C call each: in Python code, Ctrl-C could come between two steps, and the context would keep the label for ever. */
#include "lane.h"

static PyTypeObject *labelled_type, *entered_type;
static PyObject *innermost; /* ContextVar of entered, or None */
uint32_t tm_open_labels;

/* One entry into a block. Holds whatever a context that still has it needs, and no Labelled. */
typedef struct tm_entered {
	PyObject_HEAD
	PyObject *name;            /* str, or NULL: label(None) */
	uint32_t number;
	bool open;
	struct tm_entered *outside; /* entered before it in its context; NULL: none */
	uint32_t depth;             /* how many are in its chain, those that were left included, since it was tidied */
	struct tm_entered *older;   /* of the same Labelled, which has the reference; NULL: none */
} tm_entered;

typedef struct tm_labelled {
	PyObject_HEAD
	PyObject *name;      /* str or None */
	tm_entered *entries; /* that are open, the newest first: one object may be entered again inside itself, and by several threads */
} tm_labelled;

/* The innermost open one from this one outwards; borrowed. */
static tm_entered *first_open(tm_entered *from)
{
	tm_entered *open = from;
	while (open && !open->open) open = open->outside;
	if (from && !from->open && from->outside != open) Py_XSETREF(from->outside, (tm_entered *)Py_XNewRef(open)); /* the next time it is found at once */
	return open;
}

/* Cuts out those that were left behind this open one, and counts again. */
static void tidy(tm_entered *from)
{
	uint32_t depth = 1;
	for (tm_entered *one = from; one->outside; ) {
		if (one->outside->open) {
			one = one->outside;
			depth++;
		} else {
			Py_SETREF(one->outside, (tm_entered *)Py_XNewRef(one->outside->outside));
		}
	}
	from->depth = depth;
}

/* What the context has, open or not: a new reference, NULL: nothing. */
static tm_entered *of_context(void)
{
	PyObject *value;
	if (PyContextVar_Get(innermost, NULL, &value)) { /* no error of our making */
		PyErr_WriteUnraisable(innermost);
		return NULL;
	}
	if (value && Py_IS_TYPE(value, entered_type)) return (tm_entered *)value;
	Py_XDECREF(value);
	return NULL;
}

PyObject *tm_block_label_slow(uint32_t *number)
{
	tm_entered *had = of_context(), *now = first_open(had);
	PyObject *name = now ? Py_XNewRef(now->name) : NULL;
	if (name) *number = now->number;
	Py_XDECREF(had);
	return name;
}

static PyObject *labelled(PyObject *module, PyObject *name)
{
	if (tm_intern(name, "label") < 0) return NULL; /* a wrong one is refused before the block */
	tm_labelled *block = (tm_labelled *)labelled_type->tp_alloc(labelled_type, 0);
	if (block) block->name = Py_NewRef(name);
	return (PyObject *)block;
}

/* Makes it the context's: 0, or -1 with an exception. NULL: none. */
static int set_innermost(tm_entered *entered)
{
	PyObject *token = PyContextVar_Set(innermost, entered ? (PyObject *)entered : Py_None);
	Py_XDECREF(token);
	return token ? 0 : -1;
}

static PyObject *labelled_enter(PyObject *self, PyObject *unused)
{
	tm_labelled *block = (tm_labelled *)self;
	int64_t number = tm_intern(block->name, "label");
	tm_entered *entered = number < 0 ? NULL : (tm_entered *)entered_type->tp_alloc(entered_type, 0);
	if (!entered) return NULL;
	tm_entered *had = of_context();
	entered->name = block->name == Py_None ? NULL : Py_NewRef(block->name);
	entered->number = (uint32_t)number;
	tm_entered *outside = first_open(had);
	if (outside && outside->depth >= 64 && outside->depth / 2 > tm_open_labels) tidy(outside); /* blocks that overlap for ever would make an endless chain */
	entered->outside = (tm_entered *)Py_XNewRef(outside);
	entered->depth = outside ? outside->depth + 1 : 1;
	Py_XDECREF(had);
	if (set_innermost(entered)) {
		Py_DECREF(entered);
		return NULL;
	}
	entered->open = true;
	tm_open_labels++;
	entered->older = block->entries;
	block->entries = entered;
	Py_RETURN_NONE;
}

/* Which of a block's entries is left now: the innermost one of this context, or, where it was entered in another, the newest. */
static tm_entered **to_leave(tm_labelled *block, tm_entered *of_this_context)
{
	if (!block->entries->older) return &block->entries;
	for (tm_entered *one = of_this_context; one; one = one->outside)
		for (tm_entered **its = &block->entries; *its; its = &(*its)->older)
			if (*its == one) return its;
	return &block->entries;
}

/* One of its entries ends. It cannot fail. */
static void leave(tm_entered **its)
{
	tm_entered *left = *its;
	*its = left->older;
	left->older = NULL;
	left->open = false;
	tm_open_labels--;
	Py_DECREF(left);
}

static PyObject *labelled_exit(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
	tm_labelled *block = (tm_labelled *)self;
	if (!block->entries) return PyErr_Format(PyExc_RuntimeError, "this label was not entered");
	tm_entered *had = of_context();
	leave(to_leave(block, had));
	tm_entered *now = first_open(had);
	if (now != had && set_innermost(now)) PyErr_Clear(); /* no memory for it: those that were left are passed over all the same */
	Py_XDECREF(had);
	Py_RETURN_NONE;
}

/* A block that is dropped without having been left ends, too. */
static void labelled_dealloc(PyObject *self)
{
	tm_labelled *block = (tm_labelled *)self;
	PyTypeObject *type = Py_TYPE(self);
	while (block->entries) leave(&block->entries);
	Py_XDECREF(block->name);
	type->tp_free(self);
	Py_DECREF(type);
}

/* In a loop: thousands of blocks inside one another would need as many frames of C. */
static void entered_dealloc(PyObject *self)
{
	tm_entered *last = (tm_entered *)self;
	for (;;) {
		tm_entered *outside = last->outside;
		Py_XDECREF(last->name);
		entered_type->tp_free(last);
		Py_DECREF(entered_type);
		if (!outside) return;
		if (Py_REFCNT(outside) > 1) {
			Py_DECREF(outside);
			return;
		}
		last = outside;
	}
}

static PyMethodDef labelled_methods[] = {
	{"__enter__", labelled_enter, METH_NOARGS, NULL},
	{"__exit__", TM_FASTCALL(labelled_exit), NULL},
	{NULL},
};

static PyType_Slot labelled_slots[] = {
	{Py_tp_dealloc, labelled_dealloc},
	{Py_tp_methods, labelled_methods},
	{Py_tp_doc, "What label(name) returns: the block's allocations have this label."},
	{0, NULL},
};
static PyType_Spec labelled_spec = {"tack_memory.Labelled", sizeof(tm_labelled), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, labelled_slots};

static PyType_Slot entered_slots[] = {
	{Py_tp_dealloc, entered_dealloc},
	{Py_tp_doc, "One entry into a block of label(name), as contexts have it."},
	{0, NULL},
};
static PyType_Spec entered_spec = {"tack_memory._native._fast.EnteredLabel", sizeof(tm_entered), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, entered_slots};

int tm_label_init(PyObject *module)
{
	labelled_type = tm_add_type(module, &labelled_spec);
	entered_type = (PyTypeObject *)PyType_FromSpec(&entered_spec);
	innermost = PyContextVar_New("tack_memory.label", NULL);
	return labelled_type && entered_type && innermost ? 0 : -1;
}

PyMethodDef tm_label_methods[] = {
	{"labelled", labelled, METH_O, "labelled(name, /)\n--\n\nA context manager: what is allocated inside, in the block's context, has this label; inner blocks win."},
	{NULL},
};
