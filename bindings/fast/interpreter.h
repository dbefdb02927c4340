/* What each of this package's extension modules has to say to the interpreter. Knows nothing of Go. */
#ifndef TM_INTERPRETER_H
#define TM_INTERPRETER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>

/* What a module keeps belongs to the process. Returns -1 with an ImportError in a subinterpreter and where *once is set: `what` says what there is one of. */
static inline int tm_only_once(const bool *once, const char *module, const char *what)
{
	if (PyInterpreterState_Get() != PyInterpreterState_Main())
		PyErr_Format(PyExc_ImportError, "tack_memory does not support subinterpreters: its %s per process", what);
	else if (*once)
		PyErr_Format(PyExc_ImportError, "tack_memory._native.%s can be loaded once per process only", module);
	else
		return 0;
	return -1;
}

/* Whether the calling thread has the GIL. Not PyGILState_Check: it says yes to everybody once a subinterpreter was made. */
static inline bool tm_have_gil(void)
{
	PyThreadState *mine = PyGILState_GetThisThreadState();
#if PY_VERSION_HEX >= 0x030d0000
	return mine && mine == PyThreadState_GetUnchecked();
#else
	return mine && mine == _PyThreadState_UncheckedGet();
#endif
}

/* The slots of a module that `execute` fills: for the main interpreter, and with its GIL. */
#ifdef Py_mod_multiple_interpreters
#define TM_NO_SUBINTERPRETERS {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#else
#define TM_NO_SUBINTERPRETERS
#endif
#ifdef Py_mod_gil
#define TM_USES_GIL {Py_mod_gil, Py_MOD_GIL_USED},
#else
#define TM_USES_GIL
#endif
#define TM_MODULE_SLOTS(execute) {{Py_mod_exec, execute}, TM_NO_SUBINTERPRETERS TM_USES_GIL {0, NULL}}

#endif
