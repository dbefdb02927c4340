/* PointerSlot: a data descriptor that takes the place of a host class's pointer attribute. Reading gives the pointer of the Buffer that the instance keeps,
 * restored if need be; so code that nobody foresaw never reads a stale pointer. HostArraySlot is the same for a host class that keeps an array over its
 * memory. */
#include "lane.h"

typedef struct pointer_slot {
	PyObject_HEAD
	PyObject *storage; /* interned str: where the instance keeps its value */
	PyObject *adopt;   /* callable: (instance, value) -> what to keep */
	unsigned int plain; /* version of a type whose instances keep it in their __dict__: no two types share one, and it changes with the type; 0: none is known */
} pointer_slot;

static int slot_init(PyObject *self, PyObject *args, PyObject *keywords)
{
	static char *names[] = {"storage", "adopt", NULL};
	pointer_slot *slot = (pointer_slot *)self;
	PyObject *storage, *adopt;
	if (!PyArg_ParseTupleAndKeywords(args, keywords, "UO", names, &storage, &adopt)) return -1;
	if (!PyCallable_Check(adopt)) {
		PyErr_Format(PyExc_TypeError, "adopt must be callable, not %.100s", Py_TYPE(adopt)->tp_name);
		return -1;
	}
	Py_INCREF(storage);
	PyUnicode_InternInPlace(&storage);
	slot->plain = 0;
	Py_XSETREF(slot->storage, storage);
	Py_XSETREF(slot->adopt, Py_NewRef(adopt));
	return 0;
}

static int check_ready(const pointer_slot *slot)
{
	if (slot->storage) return 0;
	PyErr_SetString(PyExc_RuntimeError, "this slot was not initialised");
	return -1;
}

/* The data descriptor of the class that stores under this name (a slot), or NULL: then the instance's __dict__ does. storage may be this descriptor's own
 * name; a data descriptor wins over the __dict__, so the instance's value is safe under it. */
static PyObject *stored_by(pointer_slot *slot, PyObject *instance)
{
	PyTypeObject *type = Py_TYPE(instance);
	if (TM_LIKELY(slot->plain && slot->plain == type->tp_version_tag)) return NULL;
	PyObject *found = _PyType_Lookup(type, slot->storage);
	if (found && found != (PyObject *)slot && Py_TYPE(found)->tp_descr_set && Py_TYPE(found)->tp_descr_get) return found;
	if (!found || found == (PyObject *)slot) slot->plain = type->tp_version_tag; /* not where a plain value is found: its class may become a descriptor's */
	return NULL;
}

static int raise_missing(pointer_slot *slot, PyObject *instance)
{
	PyErr_Format(PyExc_AttributeError, "this '%.100s' object has no memory (nothing is stored under '%U')", Py_TYPE(instance)->tp_name, slot->storage);
	return -1;
}

static PyObject *given_for(PyObject *value)
{
	if (TM_LIKELY(Py_IS_TYPE(value, tm_buffer_type))) return tm_buffer_pointer((tm_buffer *)value);
	if (Py_IS_TYPE(value, tm_host_array_type)) return tm_host_array_read((tm_host_array *)value);
	if (Py_IS_TYPE(value, tm_view_type)) return tm_view_pointer((tm_view *)value);
	return Py_NewRef(value); /* the host's own, while there is no Buffer */
}

static PyObject *slot_get(PyObject *self, PyObject *instance, PyObject *type)
{
	pointer_slot *slot = (pointer_slot *)self;
	if (!instance) return Py_NewRef(self);
	if (check_ready(slot)) return NULL;
	PyObject *descriptor = stored_by(slot, instance), *value;
	if (TM_LIKELY(!descriptor)) {
		PyObject **dict = _PyObject_GetDictPtr(instance);
		value = dict && *dict ? PyDict_GetItemWithError(*dict, slot->storage) : NULL;
		if (TM_UNLIKELY(!value)) {
			if (!PyErr_Occurred()) raise_missing(slot, instance);
			return NULL;
		}
		Py_INCREF(value); /* making it resident lets other threads run */
	} else if (!(value = Py_TYPE(descriptor)->tp_descr_get(descriptor, instance, (PyObject *)Py_TYPE(instance)))) {
		return NULL;
	}
	PyObject *given = given_for(value);
	Py_DECREF(value);
	return given;
}

static int store(pointer_slot *slot, PyObject *instance, PyObject *value)
{
	PyObject *descriptor = stored_by(slot, instance);
	if (descriptor) return Py_TYPE(descriptor)->tp_descr_set(descriptor, instance, value);
	PyObject *dict = PyObject_GenericGetDict(instance, NULL);
	if (!dict) return -1;
	int failed = value ? PyDict_SetItem(dict, slot->storage, value) : PyDict_DelItem(dict, slot->storage);
	Py_DECREF(dict);
	if (failed && !value && PyErr_ExceptionMatches(PyExc_KeyError)) {
		PyErr_Clear();
		return raise_missing(slot, instance);
	}
	return failed;
}

static int slot_set(PyObject *self, PyObject *instance, PyObject *value)
{
	pointer_slot *slot = (pointer_slot *)self;
	if (check_ready(slot)) return -1;
	if (!value) return store(slot, instance, NULL);
	PyObject *kept = PyObject_CallFunctionObjArgs(slot->adopt, instance, value, NULL);
	int failed = kept ? store(slot, instance, kept) : -1;
	Py_XDECREF(kept);
	return failed;
}

static int slot_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((pointer_slot *)self)->adopt);
	return 0;
}

static int slot_clear(PyObject *self)
{
	Py_CLEAR(((pointer_slot *)self)->storage); /* an uninitialised slot is refused, a half-cleared one must be, too */
	Py_CLEAR(((pointer_slot *)self)->adopt);
	return 0;
}

static void slot_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	slot_clear(self);
	type->tp_free(self);
	Py_DECREF(type);
}

#define SLOTS(doc) \
	{ \
		{Py_tp_init, slot_init}, {Py_tp_dealloc, slot_dealloc}, {Py_tp_traverse, slot_traverse}, {Py_tp_clear, slot_clear}, {Py_tp_descr_get, slot_get}, \
		{Py_tp_descr_set, slot_set}, {Py_tp_doc, doc}, {0, NULL}, \
	}

static PyType_Slot pointer_slots[] = SLOTS(
	"PointerSlot(storage, adopt)\n--\n\nA data descriptor for host classes that keep a device pointer in an attribute. Assigning calls adopt(instance, value) and keeps what\n"
	"it returns under `storage`; reading gives a Buffer's device_ptr, and anything else as it is.");
static PyType_Slot array_slots[] = SLOTS(
	"HostArraySlot(storage, assign)\n--\n\nA data descriptor for host classes that keep an array over their memory in an attribute. Assigning calls assign(instance, value) and keeps\n"
	"what it returns under `storage`; reading a HostArray gives an array whose memory stays in its place while that array, or any view of it, lives; anything else as it is.");

static PyType_Spec slot_specs[] = {
	{"tack_memory._native._fast.PointerSlot", sizeof(pointer_slot), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, pointer_slots},
	{"tack_memory._native._fast.HostArraySlot", sizeof(pointer_slot), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, array_slots},
};

int tm_pointer_slot_init(PyObject *module)
{
	for (size_t i = 0; i < sizeof slot_specs / sizeof *slot_specs; i++) {
		PyTypeObject *type = tm_add_type(module, &slot_specs[i]);
		if (!type) return -1;
		Py_DECREF(type); /* the module has it; nobody asks for it here */
	}
	return 0;
}
