/* The software CUDA driver as a client sees it. */
#ifndef SOFT_TESTS_CUDA_CLIENT_H
#define SOFT_TESTS_CUDA_CLIENT_H

#include "../harness.h"
/* The types and numbers, but not the prototypes: we reach every function through dlsym. */
#include "../../cuda/types.h"

#define F(symbol, base, version, parameters) CUresult (*symbol) parameters;
struct api {
#include "../../cuda/functions.def"
};
#undef F
extern struct api cu;

void load(void);                   /* dlopen, dlsym, nothing else */
void start(void);                  /* load, cuInit, the primary context of device 0 current */
CUstream new_stream(unsigned flags);
void close_gate(struct gate *gate, CUstream stream); /* puts a function on the stream that waits for the gate */

#endif
