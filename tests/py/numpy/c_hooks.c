/* A module as somebody else would write it over tack_memory.h: hooks in C, with the signature of 2012 and with the newer one, and an allocator that tells of its memory. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>
#include "tack_memory.h"

static const tack_memory_api *tack;

#define MOST 100000
typedef struct record {
	tack_event event;
	int gil;
} record;
static record seen[MOST];
static unsigned count; /* atomic */

static void keep(const tack_event *event)
{
	unsigned at = __atomic_fetch_add(&count, 1, __ATOMIC_SEQ_CST);
	if (at < MOST) seen[at] = (record){*event, PyGILState_Check()};
}

static PyObject *pointer(const void *p) { return PyLong_FromVoidPtr((void *)p); }

/* What the hooks were given so far, [(kind, domain, old, new, size, seq, thread, gil)]; forgotten then. */
static PyObject *take(PyObject *self, PyObject *unused)
{
	unsigned all = __atomic_exchange_n(&count, 0, __ATOMIC_SEQ_CST);
	PyObject *list = PyList_New(0);
	for (unsigned i = 0; list && i < all && i < MOST; i++) {
		const tack_event *e = &seen[i].event;
		PyObject *one = Py_BuildValue("(iiNNnKIi)", e->kind, e->domain, pointer(e->old), pointer(e->new_), (Py_ssize_t)e->new_size, (unsigned long long)e->seq, e->thread,
			seen[i].gil);
		if (!one || PyList_Append(list, one)) Py_CLEAR(list);
		Py_XDECREF(one);
	}
	return list;
}

/* ---- the signature of 2012 */

static tack_event_hook previous;
static void *previous_data;
static int chain;  /* it calls the previous hook */
static int raises; /* it raises as often */

static void hook_2012(void *old, void *new_, size_t size, void *user_data)
{
	tack_event event = {.kind = !old ? TACK_NEW : !new_ ? TACK_FREE : TACK_RENEW, .domain = *(int *)user_data, .old = old, .new_ = new_, .new_size = size};
	keep(&event);
	if (chain && previous) previous(old, new_, size, previous_data);
	if (raises && raises--) PyErr_SetString(PyExc_ValueError, "the hook in C has failed");
}

static int mark = 77; /* its user data: shows that it comes back */

static PyObject *set_2012(PyObject *self, PyObject *args)
{
	if (!PyArg_ParseTuple(args, "|ii", &chain, &raises)) return NULL;
	void *data;
	tack_event_hook before = tack->set_event_hook(hook_2012, &mark, &data);
	if (PyErr_Occurred()) return NULL;
	previous = before;
	previous_data = data;
	return PyBool_FromLong(before != NULL);
}

/* As nested code does: what was there before is there again. True: what it replaces was ours. */
static PyObject *restore_2012(PyObject *self, PyObject *unused)
{
	void *mine;
	tack_event_hook replaced = tack->set_event_hook(previous, previous_data, &mine);
	previous = NULL;
	if (PyErr_Occurred()) return NULL;
	if (replaced == hook_2012 && mine == &mark) Py_RETURN_TRUE;
	tack->release_event_hook(replaced, mine);
	Py_RETURN_FALSE;
}

static PyObject *forget_previous(PyObject *self, PyObject *unused)
{
	tack->release_event_hook(previous, previous_data);
	previous = NULL;
	Py_RETURN_NONE;
}

static int destroyed;
static void destroy(PyObject *capsule)
{
	destroyed++;
	PyMem_Free(PyCapsule_GetContext(capsule));
}

static PyObject *capsule(PyObject *self, PyObject *unused)
{
	PyObject *made = PyCapsule_New((void *)hook_2012, TACK_HOOK_CAPSULE, destroy);
	int *data = PyMem_Malloc(sizeof *data);
	*data = 88;
	PyCapsule_SetContext(made, data);
	return made;
}

static PyObject *capsules_destroyed(PyObject *self, PyObject *unused) { return PyLong_FromLong(destroyed); }

/* ---- the newer one */

static int slow; /* ms */

static void hook_event(const tack_event *event, void *user_data)
{
	struct timespec pause = {0, slow * 1000000};
	if (slow) nanosleep(&pause, NULL); /* so that somebody else comes in between */
	if (event->size >= sizeof *event) keep(event);
	__atomic_fetch_add((unsigned *)user_data, 1, __ATOMIC_SEQ_CST);
}

static unsigned calls;

static PyObject *add(PyObject *self, PyObject *args)
{
	unsigned domains, flags = 0;
	slow = 0;
	if (!PyArg_ParseTuple(args, "I|Ii", &domains, &flags, &slow)) return NULL;
	uint64_t token = tack->add_event_hook("c_hooks", hook_event, &calls, domains, flags);
	return token ? PyLong_FromUnsignedLongLong(token) : NULL;
}

static PyObject *remove_hook(PyObject *self, PyObject *token) { return PyLong_FromLong(tack->remove_event_hook(PyLong_AsUnsignedLongLong(token))); }

/* ---- an allocator */

static PyObject *tell(PyObject *self, PyObject *args)
{
	int kind, domain, without_gil = 0;
	Py_ssize_t old, new_, size;
	if (!PyArg_ParseTuple(args, "iinnn|i", &kind, &domain, &old, &new_, &size, &without_gil)) return NULL;
	tack_event event = {.kind = kind, .domain = domain, .device = -1, .old = (void *)old, .new_ = (void *)new_, .old_size = old ? size : 0, .new_size = new_ ? size : 0, .requested = size};
	if (without_gil) {
		Py_BEGIN_ALLOW_THREADS
		tack->tell_event(&event);
		Py_END_ALLOW_THREADS
	} else {
		tack->tell_event(&event);
	}
	Py_RETURN_NONE;
}

/* In one call, so that the main thread is not asked in between: first without the GIL, then with it. */
static PyObject *tell_both(PyObject *self, PyObject *args)
{
	int domain, many;
	if (!PyArg_ParseTuple(args, "ii", &domain, &many)) return NULL;
	tack_event event = {.kind = TACK_NEW, .domain = domain, .device = -1, .new_size = 64};
	Py_BEGIN_ALLOW_THREADS
	for (int i = 1; i <= many; i++) {
		event.new_ = (void *)(uintptr_t)(64 * i);
		tack->tell_event(&event);
	}
	Py_END_ALLOW_THREADS
	event.new_ = (void *)(uintptr_t)(64 * (many + 1));
	tack->tell_event(&event);
	Py_RETURN_NONE;
}

typedef struct work {
	pthread_t thread;
	uintptr_t base;
	int blocks;
	int domain;
} work;

/* Each block of this thread: new, moved, freed; then the next one at the same addresses. No GIL, no thread state. */
static void *tell_blocks(void *given)
{
	const work *w = given;
	for (int i = 0; i < w->blocks; i++) {
		void *first = (void *)(w->base + 64 * (i % 16)), *second = (void *)(w->base + 4096 + 64 * (i % 16));
		tack_event made = {.kind = TACK_NEW, .domain = w->domain, .device = -1, .new_ = first, .new_size = i + 1};
		tack_event moved = {.kind = TACK_RENEW, .domain = w->domain, .device = -1, .old = first, .new_ = second, .old_size = i + 1, .new_size = i + 2};
		tack_event freed = {.kind = TACK_FREE, .domain = w->domain, .device = -1, .old = second, .old_size = i + 2};
		tack->tell_event(&made);
		tack->tell_event(&moved);
		tack->tell_event(&freed);
	}
	return NULL;
}

static PyObject *tell_from_threads(PyObject *self, PyObject *args)
{
	int threads, blocks, domain;
	if (!PyArg_ParseTuple(args, "iii", &threads, &blocks, &domain)) return NULL;
	work works[64];
	Py_BEGIN_ALLOW_THREADS
	for (int i = 0; i < threads; i++) {
		works[i] = (work){.base = 0x10000000 + 0x100000 * (uintptr_t)i, .blocks = blocks, .domain = domain};
		pthread_create(&works[i].thread, NULL, tell_blocks, &works[i]);
	}
	for (int i = 0; i < threads; i++) pthread_join(works[i].thread, NULL);
	Py_END_ALLOW_THREADS
	Py_RETURN_NONE;
}

static PyObject *flush(PyObject *self, PyObject *unused)
{
	if (tack->flush_events()) return NULL;
	Py_RETURN_NONE;
}

static PyObject *device_name(PyObject *self, PyObject *number)
{
	const char *name = tack->device_name((int)PyLong_AsLong(number));
	return name ? PyUnicode_FromString(name) : Py_NewRef(Py_None);
}

static PyObject *counts(PyObject *self, PyObject *unused)
{
	tack_event_counts c;
	tack->get_event_counts(&c);
	return Py_BuildValue("(KKK)", (unsigned long long)c.delivered, (unsigned long long)c.suppressed, (unsigned long long)c.dropped);
}

static PyMethodDef methods[] = {
	{"take", take, METH_NOARGS, NULL}, {"set_2012", set_2012, METH_VARARGS, NULL}, {"restore_2012", restore_2012, METH_NOARGS, NULL},
	{"forget_previous", forget_previous, METH_NOARGS, NULL}, {"capsule", capsule, METH_NOARGS, NULL}, {"capsules_destroyed", capsules_destroyed, METH_NOARGS, NULL},
	{"add", add, METH_VARARGS, NULL}, {"remove", remove_hook, METH_O, NULL}, {"tell", tell, METH_VARARGS, NULL}, {"tell_both", tell_both, METH_VARARGS, NULL}, {"tell_from_threads", tell_from_threads, METH_VARARGS, NULL},
	{"flush", flush, METH_NOARGS, NULL}, {"device_name", device_name, METH_O, NULL}, {"counts", counts, METH_NOARGS, NULL}, {NULL},
};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "c_hooks", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_c_hooks(void)
{
	if (!(tack = tack_memory_import())) return NULL;
	return PyModule_Create(&definition);
}
