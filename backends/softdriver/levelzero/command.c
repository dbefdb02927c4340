#include "command.h"

#include "../engine/host.h"
#include "../engine/transfer.h"
#include "event.h"
#include "lanes.h"

/* Memory that no context has (the client's own) is anybody's. */
static int is_own(uint64_t address, const struct ze_context *context)
{
	const void *owner = soft_owner_of(address);
	return !owner || owner == context || owner == context->driver;
}

ze_result_t ze_command_check(const struct ze_command *command, const struct ze_context *context)
{
	enum soft_result result = SOFT_OK;
	REFUSE_UNLESS(!command->signal || ze_events_known(&command->signal, 1), ERROR_INVALID_SYNCHRONIZATION_OBJECT);
	REFUSE_UNLESS(ze_events_known(command->waits, command->wait_count), ERROR_INVALID_SYNCHRONIZATION_OBJECT);
	if (!command->bytes)
		return ze_result(SOFT_OK);
	if (command->kind == ZE_COPY)
		result = soft_copy_check(command->to, command->from, command->bytes);
	else if (command->kind == ZE_FILL)
		result = soft_fill_check(command->to, command->width, command->bytes / command->width);
	if (!result && !(is_own(command->to, context) && (command->kind != ZE_COPY || is_own(command->from, context))))
		result = SOFT_INVALID_VALUE;
	return ze_result(result);
}

static void wait_on(struct soft_stream *lane, const struct ze_command *command)
{
	for (uint32_t i = 0; i < command->wait_count; i++)
		ze_event_wait_on(lane, ZE_OBJECT(ze_event, command->waits[i]));
}

void ze_command_put(const struct ze_command *command, struct ze_lanes *lanes)
{
	struct ze_event *event = ZE_OBJECT(ze_event, command->signal);
	/* A barrier without events waits for all that is there; with events for them and nothing else. All that follows waits for the barrier. */
	if (command->kind == ZE_BARRIER && !command->wait_count) {
		ze_lanes_join(lanes);
	} else if (command->kind == ZE_BARRIER || command->kind == ZE_WAIT) {
		wait_on(ze_lanes_gate(lanes), command);
		ze_lanes_pass_gate(lanes);
	}
	struct soft_stream *lane = ze_lanes_turn(lanes);
	if (command->kind == ZE_COPY || command->kind == ZE_FILL)
		wait_on(lane, command);
	if (command->kind == ZE_COPY && command->bytes)
		soft_copy_push(lane, command->to, command->from, command->bytes);
	else if (command->kind == ZE_FILL && command->bytes)
		soft_fill_push(lane, command->to, command->pattern, command->width, command->bytes / command->width);
	if (command->kind == ZE_RESET)
		ze_event_reset_on(lane, event);
	else if (event)
		ze_event_signal_on(lane, event);
}
