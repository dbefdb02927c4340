/* The interpreter's own frames, of CPython 3.11 to 3.13: what its versions call by other names. */
#ifndef NP_FRAMES_H
#define NP_FRAMES_H
#include "np.h"

#if PY_VERSION_HEX >= 0x030E0000
#error "the layout of the interpreter's frames is known of CPython 3.11 to 3.13 only"
#endif

#define Py_BUILD_CORE 1
#undef _PyGC_FINALIZED /* both kinds of headers define it on 3.11 */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wsign-compare"
#include <internal/pycore_frame.h>
#include <internal/pycore_code.h>
#pragma GCC diagnostic pop
#undef Py_BUILD_CORE

typedef struct _PyInterpreterFrame np_frame;

#if PY_VERSION_HEX >= 0x030D0000
static inline np_frame *np_innermost(const PyThreadState *state) { return state->current_frame; }
static inline PyCodeObject *np_code(const np_frame *frame) { return (PyCodeObject *)frame->f_executable; }
#else
static inline np_frame *np_innermost(const PyThreadState *state) { return state->cframe->current_frame; }
static inline PyCodeObject *np_code(const np_frame *frame) { return frame->f_code; }
#endif

/* Whether it is a frame of Python code that runs: not the interpreter's own, not one whose code has not begun, and not one that is being cleared and whose code is going as well. */
static inline bool np_runs(np_frame *frame) { return !_PyFrame_IsIncomplete(frame) && Py_REFCNT(np_code(frame)) > 0; }

static inline int np_instruction(np_frame *frame) { return _PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT); }
#endif
