/* Memory for the engine's own records. A host that has not even these few bytes left ends the process with a message: a stand-in for tests
 * gains nothing from limping on, and every such path would be one that no test can reach. What is large (address space, host memory
 * for clients, staging) is asked for elsewhere, and refused with an error. */
#ifndef SOFT_RECORD_H
#define SOFT_RECORD_H

#include <stddef.h>

void *soft_records(size_t count, size_t size);                 /* zeroed */
void *soft_records_grown(void *old, size_t count, size_t size); /* realloc: what is new is not zeroed */

#endif
