/* The few types of Level Zero that we need, declared by us (nothing is copied from the vendor's headers). The sources also compile against the
 * vendor's own headers instead (SOFT_VENDOR_HEADER): then every type, and every function we define, must agree with them. Those headers may be
 * older than what is here; what they do not know is declared by us then too. */
#ifndef SOFT_LEVELZERO_TYPES_H
#define SOFT_LEVELZERO_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef SOFT_VENDOR_HEADER
#include <level_zero/ze_api.h>
#include <level_zero/zes_api.h>
#else
typedef enum { ZE_RESULT_SUCCESS = 0, SOFT_ZE_RESULT_ = 0x7fffffff } ze_result_t;
typedef enum { SOFT_ZE_API_VERSION_ = 0x7fffffff } ze_api_version_t;
typedef enum { SOFT_ZE_STRUCTURE_TYPE_ = 0x7fffffff } ze_structure_type_t;
typedef enum { SOFT_ZES_STRUCTURE_TYPE_ = 0x7fffffff } zes_structure_type_t;
typedef uint8_t ze_bool_t;
typedef uint32_t ze_init_flags_t, zes_init_flags_t;
typedef int ze_device_type_t, ze_memory_type_t, zes_mem_type_t, zes_mem_loc_t, zes_mem_health_t;
typedef struct _ze_driver_handle_t *ze_driver_handle_t;
typedef struct _ze_device_handle_t *ze_device_handle_t;
typedef struct _ze_context_handle_t *ze_context_handle_t;
typedef struct _ze_command_queue_handle_t *ze_command_queue_handle_t;
typedef struct _ze_command_list_handle_t *ze_command_list_handle_t;
typedef struct _ze_fence_handle_t *ze_fence_handle_t;
typedef struct _ze_event_pool_handle_t *ze_event_pool_handle_t;
typedef struct _ze_event_handle_t *ze_event_handle_t;
/* Sysman's handles are the core's by type: what makes a cast of one into the other compile, and crash. */
typedef ze_driver_handle_t zes_driver_handle_t;
typedef ze_device_handle_t zes_device_handle_t;
typedef struct _zes_mem_handle_t *zes_mem_handle_t;

typedef struct { uint8_t id[16]; } ze_driver_uuid_t;
typedef struct { uint8_t id[16]; } ze_device_uuid_t;
typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	ze_driver_uuid_t uuid;
	uint32_t driverVersion;
} ze_driver_properties_t;
typedef struct {
	char name[256];
	uint32_t version;
} ze_driver_extension_properties_t;
typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	ze_device_type_t type;
	uint32_t vendorId, deviceId, flags, subdeviceId, coreClockRate;
	uint64_t maxMemAllocSize;
	uint32_t maxHardwareContexts, maxCommandQueuePriority, numThreadsPerEU, physicalEUSimdWidth, numEUsPerSubslice, numSubslicesPerSlice, numSlices;
	uint64_t timerResolution;
	uint32_t timestampValidBits, kernelTimestampValidBits;
	ze_device_uuid_t uuid;
	char name[256];
} ze_device_properties_t;
typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	uint32_t flags, maxClockRate, maxBusWidth;
	uint64_t totalSize;
	char name[256];
} ze_device_memory_properties_t;
typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	uint32_t flags;
	size_t maxMemoryFillPatternSize;
	uint32_t numQueues;
} ze_command_queue_group_properties_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t flags;
} ze_context_desc_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t ordinal, index, flags;
	int mode, priority;
} ze_command_queue_desc_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t commandQueueGroupOrdinal, flags;
} ze_command_list_desc_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t flags;
} ze_fence_desc_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t flags, count;
} ze_event_pool_desc_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t index, signal, wait;
} ze_event_desc_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t flags, ordinal;
} ze_device_mem_alloc_desc_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t flags;
} ze_host_mem_alloc_desc_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t flags;
} ze_relaxed_allocation_limits_exp_desc_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t freePolicy;
} ze_memory_free_ext_desc_t;
typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	uint32_t freePolicies;
} ze_driver_memory_free_ext_properties_t;
typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	ze_memory_type_t type;
	uint64_t id, pageSize;
} ze_memory_allocation_properties_t;
typedef struct {
	zes_structure_type_t stype;
	void *pNext;
	ze_device_properties_t core;
	uint32_t numSubdevices;
	char serialNumber[64], boardNumber[64], brandName[64], modelName[64], vendorName[64], driverVersion[64];
} zes_device_properties_t;
typedef struct {
	zes_structure_type_t stype;
	void *pNext;
	zes_mem_type_t type;
	ze_bool_t onSubdevice;
	uint32_t subdeviceId;
	zes_mem_loc_t location;
	uint64_t physicalSize;
	int32_t busWidth, numChannels;
} zes_mem_properties_t;
typedef struct {
	zes_structure_type_t stype;
	const void *pNext;
	zes_mem_health_t health;
	uint64_t free, size;
} zes_mem_state_t;
#endif

/* Newer than the oldest headers that we are checked against (Debian 12's, specification 1.4). */
#ifndef ZE_DEVICE_USABLEMEM_SIZE_PROPERTIES_EXT_NAME
#ifdef SOFT_VENDOR_HEADER
typedef uint32_t zes_init_flags_t;
#endif
typedef struct { uint8_t id[16]; } zes_uuid_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t flags;
} ze_init_driver_type_desc_t;
typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	uint64_t currUsableMemSize;
} ze_device_usablemem_size_ext_properties_t;
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	void *pSystemMemory;
	uint64_t size;
} ze_external_memmap_sysmem_ext_desc_t;
#endif

/* What every extensible structure begins with. */
struct ze_base {
	uint32_t stype;
	const void *pNext;
};

#ifndef SOFT_VENDOR_HEADER
#define F(symbol, since, parameters) __attribute__((visibility("default"))) ze_result_t symbol parameters;
#include "functions.def"
#undef F
#endif

/* The vendor's numbers under names of our own: V_ZE_RESULT_NOT_READY and so on. */
#define V(since, name, value) V_##name = value,
#define S(since, type, size)
#define O(since, type, member, offset)
enum {
#include "values.def"
};
#undef V
#undef S
#undef O

#endif
