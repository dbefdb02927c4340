/* What a device says about itself, to the core and to Sysman. */
#ifndef SOFT_LEVELZERO_PROPERTIES_H
#define SOFT_LEVELZERO_PROPERTIES_H

#include "types.h"

struct soft_device;

struct soft_visible;
void ze_visible(struct soft_visible *visible, int devices); /* ZE_AFFINITY_MASK */
void ze_device_uuid(const struct soft_device *device, uint8_t id[16]);
void ze_describe(struct soft_device *device, ze_device_properties_t *properties); /* all but stype and pNext */

#endif
