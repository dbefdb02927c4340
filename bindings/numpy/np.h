/* What all files of the module _numpy include first: Python, and NumPy's C API, of 1.22 and everything newer in one binary. */
#ifndef NP_H
#define NP_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
#define NPY_TARGET_VERSION NPY_1_22_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL np_numpy_array_api
#ifndef NP_IMPORTS_NUMPY /* module.c does */
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#define NP_LIKELY(x) __builtin_expect(!!(x), 1)
#define NP_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NP_FASTCALL(function) ((PyCFunction)(void (*)(void))(function)), METH_FASTCALL

#define NP_CAPSULE "mem_handler" /* the name that NumPy gives the capsules of handlers (NEP 49) */

extern PyMethodDef np_books_methods[], np_scope_methods[], np_owner_methods[], np_handler_methods[], np_sites_methods[], np_tracker_methods[], np_locals_methods[],
	np_store_methods[], np_shared_methods[], np_mapped_methods[], np_export_methods[];
int np_fork_init(void);
int np_handler_init(void);
int np_store_init(void);

/* The array under a view that has memory of its own, or may have: borrowed; NULL: none. */
PyArrayObject *np_root(PyObject *object);
#endif
