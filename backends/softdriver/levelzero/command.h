/* A command as a list has it: what to do, what to wait for before, and what to signal after. All of it needs the engine's lock. */
#ifndef SOFT_LEVELZERO_COMMAND_H
#define SOFT_LEVELZERO_COMMAND_H

#include "../engine/stream.h"
#include "abi.h"

struct ze_lanes;

enum ze_command_kind { ZE_COPY, ZE_FILL, ZE_BARRIER, ZE_WAIT, ZE_SIGNAL, ZE_RESET };

struct ze_command {
	enum ze_command_kind kind;
	uint64_t to, from, bytes;
	unsigned width; /* of a fill's pattern */
	unsigned char pattern[SOFT_MAX_PATTERN];
	ze_event_handle_t signal; /* after it; what SIGNAL and RESET are about; NULL: none */
	uint32_t wait_count;
	ze_event_handle_t *waits;
};

/* Whether it can be put on lanes now: its events and memory exist, and the memory is this context's. Memory that died poisons the process. */
ze_result_t ze_command_check(const struct ze_command *command, const struct ze_context *context);
/* Needs a check that passed. */
void ze_command_put(const struct ze_command *command, struct ze_lanes *lanes);

#endif
