/* The extensions that the driver may have, and the functions that only extensions have. */
#ifndef SOFT_LEVELZERO_EXTENSION_H
#define SOFT_LEVELZERO_EXTENSION_H

#include "types.h"

enum ze_extension_id {
	ZE_FREE_POLICIES,
	ZE_USABLE_MEMORY,
	ZE_SYSTEM_MEMORY_MAP,
	ZE_RELAXED_LIMITS,
	ZE_RELAXED_LIMITS_EXP,
	ZE_EXTENSIONS
};
/* Whether the driver lists it: by its version, and by the settings. */
int ze_has_extension(enum ze_extension_id id);

#define X(name, parameters) ze_result_t ze_##name parameters;
#include "extensions.def"
#undef X

#endif
