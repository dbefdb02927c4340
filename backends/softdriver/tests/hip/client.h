/* The software HIP runtime as a client sees it. */
#ifndef SOFT_TESTS_HIP_CLIENT_H
#define SOFT_TESTS_HIP_CLIENT_H

#include "../harness.h"
/* The types and numbers, but not the prototypes: we reach every function through dlsym. */
#include "../../hip/types.h"

#define F(symbol, since, result, parameters) result (*symbol) parameters;
struct api {
#include "../../hip/functions.def"
};
#undef F
extern struct api hip;

void load(void);                  /* dlopen, dlsym, nothing else */
void load_devices(int count);     /* the same, with so many devices */
hipStream_t new_stream(void);     /* one that the null stream does not order */
void *new_block(size_t bytes);
void *new_pinned(size_t bytes);
hipMemPool_t new_pool(size_t most);
void close_gate(struct gate *gate, hipStream_t stream); /* puts a function on the stream that waits for the gate */
/* Opens the gate from another thread, once `function` has been called `calls` times; so a call that waits for the stream of the gate comes back, and a
 * test sees by the result whether it did wait. Joins at the end of the process. */
void open_gate_when_called(struct gate *gate, const char *function, unsigned long calls);

#define DEVICE_BYTES(block) ((unsigned char *)(block))

#endif
