/* Command queues, fences and command lists. */
#ifndef SOFT_LEVELZERO_QUEUE_H
#define SOFT_LEVELZERO_QUEUE_H

#include "abi.h"
#include "command.h"
#include "lanes.h"

enum { ZE_QUEUE_GROUPS = 2, ZE_QUEUES_OF_A_GROUP = 4 };

struct ze_queue {
	struct ze_context *context;
	uint32_t ordinal;
	int synchronous;
	unsigned fences;
	struct ze_lanes lanes;
};

struct ze_list {
	struct ze_context *context;
	struct soft_device *device;
	uint32_t ordinal;
	int immediate, in_order, synchronous;
	_Atomic int appending;     /* threads in an append now: more than one is the client's mistake */

	struct ze_lanes lanes;     /* of an immediate list */

	int closed;                /* the rest: of the others */
	struct ze_command *commands;
	unsigned count, room;
	struct ze_mark execution;  /* the last one */
};

/* Whether a description of a queue is one that this device can have; for queues and for immediate lists. */
ze_result_t ze_queue_desc_check(ze_context_handle_t context, ze_device_handle_t device, const ze_command_queue_desc_t *desc);

#endif
