/* Buffer.export(): the buffer stays on the device as long as the Exported object lives, or anything that it was given to by DLPack. */
#include "lane.h"
#include "dlpack.h"
#include "docs_buffers.h"

PyTypeObject *tm_exported_type;

#define CAPSULE "dltensor"
#define VERSIONED_CAPSULE "dltensor_versioned"

/* What keeps the buffer: shared by the Exported object and all tensors made of it, which may end in any order, on any thread, with or without the GIL. */
typedef struct tm_pin {
	uint32_t references; /* atomic */
	uint32_t device, index;
	uint64_t token;      /* gomem's number of the hold; 0: foreign memory, or a forked child's */
	bool child;          /* made in a forked child: C counts it */
	PyObject *of;        /* Buffer, BufferView, or (a copy for the host) bytearray */
} tm_pin;

typedef struct tm_exported {
	PyObject_HEAD
	PyObject *of;
	tm_pin *pin; /* NULL after close() */
	uint64_t address, nbytes;
	PyObject *weak;
} tm_exported;

/* One tensor that was given away; the shape stands behind it in the same piece of memory. */
typedef struct tm_tensor {
	union {
		DLManagedTensor plain;
		DLManagedTensorVersioned versioned;
	};
	tm_pin *pin;
	int64_t shape[1], strides[1];
} tm_tensor;

/* Gives up one reference; the last one ends the hold. Any thread, with or without the GIL. */
static void unpin(tm_pin *pin)
{
	if (__atomic_sub_fetch(&pin->references, 1, __ATOMIC_ACQ_REL)) return;
	if ((pin->token || pin->child) && tm_forked) { /* also the parent's: the child's copy of the count is C's, where the child may use the memory at all */
		bool ok = true;
		tm_buffer *base = tm_root(pin->of, &ok);
		if (base && base->home && tm_devices[base->device].is_cpu) __atomic_fetch_sub(&base->home->pins, 1, __ATOMIC_SEQ_CST);
	} else if (pin->token) {
		tm_call call = {.op = TM_OP_RELEASE, .device = pin->device, .index = pin->index, .token = pin->token};
		tm_release_anywhere(&call);
	}
	if (tm_have_gil()) {
		Py_DECREF(pin->of);
	} else if (Py_IsInitialized() && !tm_finalizing()) {
		PyGILState_STATE state = PyGILState_Ensure();
		Py_DECREF(pin->of);
		PyGILState_Release(state);
	} /* else: the process is at its end, and nobody can take the GIL any more */
	free(pin);
}

/* A hold for an export: with one reference; NULL with an exception. */
static tm_pin *pin_range(PyObject *of, const tm_range *range, uint32_t reason, uint64_t *address)
{
	uint32_t asker = tm_asker();
	bool child;
	if (tm_check_alive(range->base) || tm_check_fork((int)range->device, &child)) return NULL;
	tm_pin *pin = calloc(1, sizeof *pin);
	if (!pin) {
		PyErr_NoMemory();
		return NULL;
	}
	pin->references = 1;
	pin->device = range->device;
	*address = range->address;
	if (range->base && child) {
		*address = range->base->home->address + range->offset; /* never moves, and `of` keeps it from all but free() */
		__atomic_fetch_add(&range->base->home->pins, 1, __ATOMIC_SEQ_CST);
		pin->child = true;
	} else if (range->base) {
		tm_call call = {.op = TM_OP_HOLD, .flags = TM_EXPORT, .origin = asker, .device = range->device, .index = range->base->index, .reason = reason};
		if (tm_perform_on(range->base, &call, tm_word(range->base->record) == TM_RESIDENT ? TM_SHORT : tm_bringing(range->device, range->base->nbytes))) {
			free(pin);
			return NULL;
		}
		pin->index = range->base->index;
		pin->token = call.token;
		*address = call.address + range->offset;
	}
	pin->of = Py_NewRef(of);
	return pin;
}

PyObject *tm_export_new(PyObject *of, PyObject *reason)
{
	tm_range range;
	if (tm_range_of(of, "export", &range)) return NULL;
	static PyObject *usual;
	if (!usual && !(usual = PyUnicode_InternFromString("export"))) return NULL;
	int64_t number = tm_intern(tm_given(reason) ? reason : usual, "reason");
	if (number < 0) return NULL;
	uint64_t address;
	tm_pin *pin = pin_range(of, &range, (uint32_t)number, &address);
	if (!pin) return NULL;
	tm_exported *exported = PyObject_GC_New(tm_exported, tm_exported_type);
	if (!exported) {
		unpin(pin);
		return NULL;
	}
	exported->of = Py_NewRef(of);
	exported->pin = pin;
	exported->address = address;
	exported->nbytes = range.nbytes;
	exported->weak = NULL;
	if (Py_IS_TYPE(of, tm_view_type)) PyObject_GC_Track(exported);
	return (PyObject *)exported;
}

/* ---- DLPack */

static void delete_plain(DLManagedTensor *tensor)
{
	tm_pin *pin = ((tm_tensor *)tensor->manager_ctx)->pin;
	free(tensor->manager_ctx);
	unpin(pin);
}

static void delete_versioned(DLManagedTensorVersioned *tensor)
{
	tm_pin *pin = ((tm_tensor *)tensor->manager_ctx)->pin;
	free(tensor->manager_ctx);
	unpin(pin);
}

/* A capsule that nobody consumed still owns its tensor; a consumer renames the one that it takes. */
static void delete_capsule(PyObject *capsule)
{
	PyObject *type, *value, *traceback;
	PyErr_Fetch(&type, &value, &traceback);
	if (PyCapsule_IsValid(capsule, CAPSULE))
		delete_plain(PyCapsule_GetPointer(capsule, CAPSULE));
	else if (PyCapsule_IsValid(capsule, VERSIONED_CAPSULE))
		delete_versioned(PyCapsule_GetPointer(capsule, VERSIONED_CAPSULE));
	PyErr_Restore(type, value, traceback);
}

/* A capsule over nbytes at the address; it takes over one reference to the pin, also at an error. */
static PyObject *make_capsule(tm_pin *pin, uint64_t address, uint64_t nbytes, DLDevice device, bool versioned, bool copied)
{
	tm_tensor *tensor = calloc(1, sizeof *tensor);
	if (!tensor) {
		unpin(pin);
		return PyErr_NoMemory();
	}
	tensor->pin = pin;
	tensor->shape[0] = (int64_t)nbytes;
	tensor->strides[0] = 1;
	DLTensor *described = versioned ? &tensor->versioned.dl_tensor : &tensor->plain.dl_tensor;
	*described = (DLTensor){.data = (void *)(uintptr_t)address, .device = device, .ndim = 1, .dtype = {kDLUInt, 8, 1}, .shape = tensor->shape,
		.strides = tensor->strides};
	if (versioned) {
		tensor->versioned.version.major = 1;
		tensor->versioned.manager_ctx = tensor;
		tensor->versioned.deleter = delete_versioned;
		tensor->versioned.flags = copied ? DLPACK_FLAG_BITMASK_IS_COPIED : 0;
	} else {
		tensor->plain.manager_ctx = tensor;
		tensor->plain.deleter = delete_plain;
	}
	PyObject *capsule = PyCapsule_New(tensor, versioned ? VERSIONED_CAPSULE : CAPSULE, delete_capsule);
	if (!capsule) {
		free(tensor);
		unpin(pin);
	}
	return capsule;
}

static DLDevice device_of(uint32_t index)
{
	const tm_device *device = &tm_devices[index];
	return (DLDevice){device->dlpack_type, device->dlpack_type == kDLCPU ? 0 : (int32_t)device->ordinal};
}

/* Two ints of a tuple argument: 1 if given, 0 if not, -1 with an exception. */
static int get_pair(PyObject *value, const char *name, int64_t pair[2])
{
	if (!tm_given(value)) return 0;
	if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 2) {
		PyErr_Format(PyExc_TypeError, "%s must be a tuple of two ints, not %R", name, value);
		return -1;
	}
	for (int i = 0; i < 2; i++)
		if ((pair[i] = tm_parse_count(PyTuple_GET_ITEM(value, i), name)) < 0) return -1;
	return 1;
}

static int synchronize(uint32_t device)
{
	if (tm_forked) return 0; /* only the CPU comes here in a child */
	tm_call call = {.op = TM_OP_SYNCHRONIZE, .device = device};
	return tm_perform(&call, TM_LONG);
}

/* Orders the consumer's work after ours, as the array API standard says of `stream`: None is the legacy default stream, -1 wants no order. */
static int order_stream(uint32_t index, PyObject *stream)
{
	const tm_device *device = &tm_devices[index];
	stream = tm_given(stream);
	if (stream && PyLong_CheckExact(stream) && PyLong_AsLong(stream) == -1 && !PyErr_Occurred()) return 0;
	PyErr_Clear();
	uint64_t handle = 0;
	if (stream && tm_parse_handle(stream, "stream", &handle)) return -1;
	switch (device->dlpack_type) {
	case kDLCUDA:
		if (stream && handle == 0) {
			PyErr_SetString(PyExc_ValueError, "stream 0 is ambiguous on CUDA: 1 is the legacy default stream, 2 the per-thread default stream");
			return -1;
		}
		if (!stream) handle = 1;
		break;
	case kDLROCM:
		if (handle == 1 || handle == 2) {
			PyErr_Format(PyExc_ValueError, "ROCm has no stream %R: 0 is the default stream", stream);
			return -1;
		}
		break;
	case kDLCPU:
		if (stream) {
			PyErr_Format(PyExc_ValueError, "memory that the host reads has no streams: stream must be None, not %R", stream);
			return -1;
		}
	}
	/* No handle to order against: the host reads the memory by itself, or it is HIP's null stream. */
	if (!handle) return synchronize(index);
	tm_call call = {.op = TM_OP_JOIN, .flags = TM_ASK, .device = index, .token = handle};
	return tm_perform(&call, TM_SHORT);
}

/* A copy in ordinary host memory, for a consumer that asks for one. */
static PyObject *copy_for_host(tm_exported *exported, bool versioned)
{
	PyObject *bytes = PyObject_CallMethod(exported->of, "copy_to_host", NULL);
	if (!bytes) return NULL;
	tm_pin *pin = calloc(1, sizeof *pin);
	if (!pin) {
		Py_DECREF(bytes);
		return PyErr_NoMemory();
	}
	pin->references = 1;
	pin->of = bytes;
	return make_capsule(pin, (uint64_t)(uintptr_t)PyByteArray_AS_STRING(bytes), exported->nbytes, (DLDevice){kDLCPU, 0}, versioned, true);
}

/* A copy on the device, in a buffer of its own that is exported in its turn. */
static PyObject *copy_on_device(tm_exported *exported, PyObject *stream, bool versioned)
{
	tm_call call = {.op = TM_OP_ALLOCATE, .device = exported->pin->device, .nbytes = exported->nbytes};
	if (tm_forked) return PyErr_Format(PyExc_BufferError, "a copy cannot be made in a forked child");
	if (tm_perform(&call, tm_bringing(call.device, call.nbytes))) return NULL;
	PyObject *copy = tm_buffer_new(&call, NULL, NULL);
	PyObject *done = copy ? PyObject_CallMethod(copy, "copy_from", "O", exported->of) : NULL;
	PyObject *capsule = NULL;
	tm_range range;
	uint64_t address;
	if (done && !tm_range_of(copy, "copy", &range) && !order_stream(range.device, stream)) {
		PyObject *text = PyUnicode_InternFromString("dlpack copy");
		int64_t reason = text ? tm_intern(text, "reason") : -1;
		Py_XDECREF(text);
		tm_pin *pin = reason < 0 ? NULL : pin_range(copy, &range, (uint32_t)reason, &address);
		if (pin) capsule = make_capsule(pin, address, range.nbytes, device_of(range.device), versioned, true);
	}
	Py_XDECREF(done);
	Py_XDECREF(copy);
	return capsule;
}

static int check_open(const tm_exported *exported)
{
	if (exported->pin) return 0;
	PyErr_SetString(PyExc_ValueError, "this export was closed");
	return -1;
}

static PyObject *exported_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names)
{
	static tm_signature signature = {"__dlpack__", 0, 0, {"stream", "max_version", "dl_device", "copy"}};
	tm_exported *exported = (tm_exported *)self;
	PyObject *value[4];
	int64_t version[2], wanted[2];
	if (tm_arguments(&signature, args, nargs, names, value) || check_open(exported)) return NULL;
	int has_version = get_pair(value[1], "max_version", version), has_device = has_version < 0 ? -1 : get_pair(value[2], "dl_device", wanted);
	if (has_device < 0) return NULL;
	int copy = -1; /* None: only where it must be */
	if (tm_given(value[3]) && (copy = PyObject_IsTrue(value[3])) < 0) return NULL;
	if (check_open(exported)) return NULL; /* closed by code of the arguments (__index__, __bool__) */
	bool versioned = has_version && version[0] >= 1;
	DLDevice own = device_of(exported->pin->device);
	if (has_device && (wanted[0] != own.device_type || wanted[1] != own.device_id)) {
		if (wanted[0] == kDLCPU && copy != 0) return copy_for_host(exported, versioned);
		return PyErr_Format(PyExc_BufferError, "memory on %U cannot be given to DLPack device (%lld, %lld)%s", tm_devices[exported->pin->device].name,
			(long long)wanted[0], (long long)wanted[1], copy == 0 ? " without a copy" : "");
	}
	if (copy == 1) return copy_on_device(exported, value[0], versioned);
	if (order_stream(exported->pin->device, value[0])) return NULL;
	if (check_open(exported)) return NULL; /* closed by another thread meanwhile */
	__atomic_fetch_add(&exported->pin->references, 1, __ATOMIC_RELAXED);
	return make_capsule(exported->pin, exported->address, exported->nbytes, own, versioned, false);
}

static PyObject *exported_dlpack_device(PyObject *self, PyObject *unused)
{
	tm_exported *exported = (tm_exported *)self;
	if (check_open(exported)) return NULL;
	DLDevice device = device_of(exported->pin->device);
	return Py_BuildValue("(ii)", device.device_type, device.device_id);
}

/* ---- the type */

static PyObject *exported_close(PyObject *self, PyObject *unused)
{
	tm_pin *pin = ((tm_exported *)self)->pin;
	((tm_exported *)self)->pin = NULL;
	if (pin) unpin(pin);
	Py_RETURN_NONE;
}

static PyObject *get_device_ptr(PyObject *self, void *unused)
{
	tm_exported *exported = (tm_exported *)self;
	if (check_open(exported)) return NULL;
	return PyLong_FromUnsignedLongLong(exported->address);
}

static PyObject *get_nbytes(PyObject *self, void *unused) { return PyLong_FromUnsignedLongLong(((tm_exported *)self)->nbytes); }

static PyObject *get_buffer(PyObject *self, void *unused) { return Py_NewRef(((tm_exported *)self)->of); }

static int exported_traverse(PyObject *self, visitproc visit, void *arg)
{
	tm_exported *exported = (tm_exported *)self;
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(exported->of);
	/* As long as no tensor shares the pin, its reference is this object's. A consumer's is one from outside. */
	if (exported->pin && __atomic_load_n(&exported->pin->references, __ATOMIC_ACQUIRE) == 1) Py_VISIT(exported->pin->of);
	return 0;
}

static void exported_dealloc(PyObject *self)
{
	tm_exported *exported = (tm_exported *)self;
	PyTypeObject *type = Py_TYPE(self);
	PyObject_GC_UnTrack(self);
	if (exported->weak) PyObject_ClearWeakRefs(self);
	if (exported->pin) unpin(exported->pin);
	Py_DECREF(exported->of);
	type->tp_free(self);
	Py_DECREF(type);
}

static PyGetSetDef exported_getset[] = {
	{"device_ptr", get_device_ptr, NULL, "Address on the device; valid until close().", NULL},
	{"nbytes", get_nbytes, NULL, "Size in bytes.", NULL},
	{"buffer", get_buffer, NULL, "The Buffer or BufferView that was exported.", NULL},
	{NULL},
};

static PyMethodDef exported_methods[] = {
	{"__dlpack__", TM_KEYWORDS(exported_dlpack),
		"__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\nA DLPack capsule: uint8, one dimension."},
	{"__dlpack_device__", exported_dlpack_device, METH_NOARGS, "__dlpack_device__($self, /)\n--\n\n(device type, device id) of DLPack."},
	{"close", exported_close, METH_NOARGS,
		"close($self, /)\n--\n\nEnds this object's share of the hold; what it was given to by DLPack keeps its own."},
	{NULL},
};

static PyMemberDef exported_members[] = {
	{"__weaklistoffset__", T_PYSSIZET, offsetof(tm_exported, weak), READONLY, NULL},
	{NULL},
};

static PyType_Slot exported_slots[] = {
	{Py_tp_dealloc, exported_dealloc},
	{Py_tp_traverse, exported_traverse},
	{Py_tp_getset, exported_getset},
	{Py_tp_methods, exported_methods},
	{Py_tp_members, exported_members},
	{Py_tp_doc, TM_DOC_EXPORTED},
	{0, NULL},
};
static PyType_Spec exported_spec = {"tack_memory.Exported", sizeof(tm_exported), 0,
	Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, exported_slots};

int tm_export_init(PyObject *module)
{
	return (tm_exported_type = tm_add_type(module, &exported_spec)) ? 0 : -1;
}
