/* Making handlers, and knowing them again. */
#include "handler.h"
#include "store.h"
#include <stdlib.h>

PyDataMemAllocator np_default;
PyObject *np_default_capsule;

static const np_kind *const kinds[] = {&np_counted, &np_aligned, &np_hugepage, &np_wrapped, &np_shared, &np_mapped};

static np_handler *all; /* changed and read with the GIL */

static void leave(np_handler *handler)
{
	np_handler **link = &all;
	while (*link != handler) link = &(*link)->next;
	*link = handler->next;
}

/* Runs when no array and no context has the handler any more. */
static void destroy(PyObject *capsule)
{
	np_handler *handler = PyCapsule_GetPointer(capsule, NP_CAPSULE);
	if (!handler) {
		PyErr_WriteUnraisable(capsule); /* somebody renamed it: better its memory is lost */
		return;
	}
	leave(handler);
	Py_DECREF(handler->inner_capsule);
	if (handler->store) np_store_leave(handler->store);
	free(handler);
}

PyObject *np_handler_make(const np_kind *kind, PyObject *over, size_t prefix, size_t align, bool advise)
{
	const PyDataMem_Handler *inner = PyCapsule_GetPointer(over, NP_CAPSULE);
	if (!inner) return NULL;
	np_handler *handler = calloc(1, sizeof *handler);
	if (!handler) return PyErr_NoMemory();
	if (over == np_default_capsule)
		snprintf(handler->numpy.name, sizeof handler->numpy.name, "%s", kind->name);
	else
		snprintf(handler->numpy.name, sizeof handler->numpy.name, "%s(%.100s)", kind->name, inner->name);
	handler->numpy.version = 1;
	handler->numpy.allocator = kind->functions;
	handler->numpy.allocator.ctx = handler;
	handler->inner = inner->allocator;
	handler->prefix = prefix;
	handler->align = align;
	handler->advise = advise;
	PyObject *capsule = PyCapsule_New(handler, NP_CAPSULE, destroy);
	if (!capsule) {
		free(handler);
		return NULL;
	}
	handler->inner_capsule = Py_NewRef(over);
	handler->next = all;
	all = handler;
	return capsule;
}

np_handler *np_handler_in(PyObject *capsule)
{
	if (!PyCapsule_IsValid(capsule, NP_CAPSULE)) return NULL;
	PyDataMem_Handler *found = PyCapsule_GetPointer(capsule, NP_CAPSULE);
	size_t kind = 0;
	while (kind < sizeof kinds / sizeof *kinds && found->allocator.free != kinds[kind]->functions.free) kind++;
	if (kind == sizeof kinds / sizeof *kinds) return NULL;
	if (found->allocator.ctx == (void *)found) return (np_handler *)found;
	for (np_handler *handler = all; handler; handler = handler->next) /* a copy's context may be anything: not every function of ours looks at it */
		if (found->allocator.ctx == (void *)handler) return handler;
	return NULL;
}

np_header *np_header_at(const np_handler *handler, void *pointer)
{
	if (!handler->store) return np_header_of(pointer);
	np_arena *arena;
	np_block *block = np_store_find(handler->store, pointer, &arena);
	return block ? &block->header : NULL;
}

static int power_of_two(PyObject *value, size_t most, size_t *align)
{
	*align = PyLong_AsSize_t(value);
	if (*align == (size_t)-1 && PyErr_Occurred()) return -1;
	if (*align >= 1 && *align <= most && !(*align & (*align - 1))) return 0;
	PyErr_Format(PyExc_ValueError, "align must be a power of two of at most %zu bytes, not %zu", most, *align);
	return -1;
}

static PyObject *counted(PyObject *module, PyObject *unused) { return np_handler_make(&np_counted, np_default_capsule, 0, 0, false); }

static PyObject *aligned(PyObject *module, PyObject *value)
{
	size_t align;
	if (power_of_two(value, (size_t)1 << 30, &align)) return NULL;
	return np_handler_make(&np_aligned, np_default_capsule, 0, align < 16 ? 16 : align, false);
}

static PyObject *hugepage(PyObject *module, PyObject *advise)
{
	int on = PyObject_IsTrue(advise);
	return on < 0 ? NULL : np_handler_make(&np_hugepage, np_default_capsule, 0, 0, on);
}

static PyObject *wrapped(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
	size_t align;
	if (nargs != 2) return PyErr_Format(PyExc_TypeError, "wrapped() takes capsule and align");
	if (power_of_two(args[1], (size_t)1 << 30, &align)) return NULL;
	if (!PyCapsule_CheckExact(args[0])) return PyErr_Format(PyExc_TypeError, "a handler is a capsule, not %.100s", Py_TYPE(args[0])->tp_name);
	if (!PyCapsule_IsValid(args[0], NP_CAPSULE)) {
		const char *name = PyCapsule_GetName(args[0]);
		return PyErr_Format(PyExc_ValueError, "NumPy's handlers are capsules named \"%s\" (NEP 49), and this one is named \"%.100s\"", NP_CAPSULE, name ? name : "");
	}
	const PyDataMem_Handler *inner = PyCapsule_GetPointer(args[0], NP_CAPSULE);
	if (inner->version != 1) return PyErr_Format(PyExc_ValueError, "the handler %.100s is of version %d; only version 1 is known", inner->name, (int)inner->version);
	if (np_handler_in(args[0])) return PyErr_Format(PyExc_ValueError, "the handler %.100s counts already", inner->name);
	return np_handler_make(&np_wrapped, args[0], align < 16 ? 16 : align, 0, false);
}

int np_handler_init(void)
{
	const PyDataMem_Handler *handler = PyCapsule_GetPointer(PyDataMem_DefaultHandler, NP_CAPSULE);
	if (!handler) return -1;
	if (handler->version != 1) {
		PyErr_Format(PyExc_ImportError, "NumPy's own memory handler is of version %d; only version 1 is known", (int)handler->version);
		return -1;
	}
	np_default = handler->allocator;
	np_default_capsule = Py_NewRef(PyDataMem_DefaultHandler);
	return 0;
}

PyMethodDef np_handler_methods[] = {
	{"counted", counted, METH_NOARGS, "counted()\n--\n\nA handler that counts, over NumPy's own."},
	{"aligned", aligned, METH_O, "aligned(align, /)\n--\n\nThe same with every address a multiple of align bytes."},
	{"hugepage", hugepage, METH_O, "hugepage(advise, /)\n--\n\nThe same with blocks of 4 MiB and more on huge pages; without advise they are only aligned to them."},
	{"wrapped", NP_FASTCALL(wrapped), "wrapped(capsule, align, /)\n--\n\nA handler that counts, over somebody's own, whose blocks are aligned to align bytes."},
	{NULL},
};
