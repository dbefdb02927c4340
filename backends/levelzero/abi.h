/* The few types and numbers of Level Zero that this backend needs, in declarations of our own: nothing is copied from a vendor's header,
 * and none is needed to build. Names are the vendor's, so that a build with TML_VENDOR_HEADER defined compiles the same code, and the
 * prototypes of symbols.def, against real headers (ze_api.h and zes_api.h in TML_VENDOR_HEADER's folder), of which TML_HEADER_VERSION
 * says the version of the specification: 1004 for 1.4. What a header is too old to have is declared here all the same.
 *
 * The software driver that the tests run on has declarations of its own (softdriver/levelzero/types.h), on purpose: with common ones a wrong number or
 * field would be wrong on both sides, and no test would see it. */
#ifndef TML_ABI_H
#define TML_ABI_H
#include <stddef.h>
#include <stdint.h>

#ifdef TML_VENDOR_HEADER
#include TML_VENDOR_HEADER
#else
#define TML_HEADER_VERSION 0
typedef uint32_t ze_result_t;
typedef uint8_t ze_bool_t;
typedef uint32_t ze_structure_type_t;
typedef uint32_t ze_init_flags_t;
typedef uint32_t ze_api_version_t;

typedef struct _ze_driver_handle_t *ze_driver_handle_t;
typedef struct _ze_device_handle_t *ze_device_handle_t;
typedef struct _ze_context_handle_t *ze_context_handle_t;
typedef struct _ze_command_queue_handle_t *ze_command_queue_handle_t;
typedef struct _ze_command_list_handle_t *ze_command_list_handle_t;
typedef struct _ze_fence_handle_t *ze_fence_handle_t;
typedef struct _ze_event_pool_handle_t *ze_event_pool_handle_t;
typedef struct _ze_event_handle_t *ze_event_handle_t;
typedef struct _zes_driver_handle_t *zes_driver_handle_t;
typedef struct _zes_device_handle_t *zes_device_handle_t;
typedef struct _zes_mem_handle_t *zes_mem_handle_t;

typedef struct { uint8_t id[16]; } ze_driver_uuid_t;
typedef struct { uint8_t id[16]; } ze_device_uuid_t;

typedef struct {
	char name[256];
	uint32_t version;
} ze_driver_extension_properties_t;

typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	ze_driver_uuid_t uuid;
	uint32_t driverVersion;
} ze_driver_properties_t;

typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	uint32_t freePolicies;
} ze_driver_memory_free_ext_properties_t;

typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	uint32_t type, vendorId, deviceId, flags, subdeviceId, coreClockRate;
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
	uint32_t ordinal, index, flags, mode, priority;
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
	uint32_t freePolicy;
} ze_memory_free_ext_desc_t;

typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	uint32_t type;
	uint64_t id, pageSize;
} ze_memory_allocation_properties_t;

typedef struct {
	uint32_t stype;
	void *pNext;
	ze_device_properties_t core;
	uint32_t numSubdevices;
	char serialNumber[64], boardNumber[64], brandName[64], modelName[64], vendorName[64], driverVersion[64];
} zes_device_properties_t;

typedef struct {
	uint32_t stype;
	void *pNext;
	uint32_t type;
	ze_bool_t onSubdevice;
	uint32_t subdeviceId, location;
	uint64_t physicalSize;
	int32_t busWidth, numChannels;
} zes_mem_properties_t;

typedef struct {
	uint32_t stype;
	const void *pNext;
	uint32_t health;
	uint64_t free, size;
} zes_mem_state_t;
#endif

#if TML_HEADER_VERSION < 1005
typedef uint32_t zes_init_flags_t;
#endif
#if TML_HEADER_VERSION < 1008
typedef struct { uint8_t id[16]; } zes_uuid_t;
#endif
#if TML_HEADER_VERSION < 1010
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t flags;
} ze_init_driver_type_desc_t;
#endif
#if TML_HEADER_VERSION < 1015
typedef struct {
	ze_structure_type_t stype;
	void *pNext;
	uint64_t currUsableMemSize;
} ze_device_usablemem_size_ext_properties_t;
#endif
/* The experimental form of 1.1 and the final one have the same layout, and differ in stype. */
typedef struct {
	ze_structure_type_t stype;
	const void *pNext;
	uint32_t flags;
} tml_relaxed_limits;

/* V(our name, the vendor's name, value, version of the specification that has it) */
#define TML_VALUES(V) \
	V(TML_NOT_READY, ZE_RESULT_NOT_READY, 1, 1000) \
	V(TML_DEVICE_LOST, ZE_RESULT_ERROR_DEVICE_LOST, 0x70000001, 1000) \
	V(TML_OUT_OF_HOST_MEMORY, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, 0x70000002, 1000) \
	V(TML_OUT_OF_DEVICE_MEMORY, ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, 0x70000003, 1000) \
	V(TML_DEVICE_REQUIRES_RESET, ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET, 0x70000006, 1004) \
	V(TML_INSUFFICIENT_PERMISSIONS, ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS, 0x70010000, 1000) \
	V(TML_NOT_AVAILABLE, ZE_RESULT_ERROR_NOT_AVAILABLE, 0x70010001, 1000) \
	V(TML_DEPENDENCY_UNAVAILABLE, ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE, 0x70020000, 1000) \
	V(TML_UNINITIALIZED, ZE_RESULT_ERROR_UNINITIALIZED, 0x78000001, 1000) \
	V(TML_UNSUPPORTED_VERSION, ZE_RESULT_ERROR_UNSUPPORTED_VERSION, 0x78000002, 1000) \
	V(TML_UNSUPPORTED_FEATURE, ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, 0x78000003, 1000) \
	V(TML_INVALID_ARGUMENT, ZE_RESULT_ERROR_INVALID_ARGUMENT, 0x78000004, 1000) \
	V(TML_INVALID_NULL_HANDLE, ZE_RESULT_ERROR_INVALID_NULL_HANDLE, 0x78000005, 1000) \
	V(TML_INVALID_NULL_POINTER, ZE_RESULT_ERROR_INVALID_NULL_POINTER, 0x78000007, 1000) \
	V(TML_UNSUPPORTED_SIZE, ZE_RESULT_ERROR_UNSUPPORTED_SIZE, 0x78000009, 1000) \
	V(TML_INVALID_ENUMERATION, ZE_RESULT_ERROR_INVALID_ENUMERATION, 0x7800000c, 1000) \
	V(TML_UNSUPPORTED_ENUMERATION, ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION, 0x7800000d, 1000) \
	V(TML_INVALID_COMMAND_LIST_TYPE, ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE, 0x78000019, 1000) \
	V(TML_SURVIVABILITY_MODE, ZE_RESULT_ERROR_SURVIVABILITY_MODE_DETECTED, 0x78000020, 1013) \
	V(TML_INIT_GPU_ONLY, ZE_INIT_FLAG_GPU_ONLY, 1, 1000) \
	V(TML_INIT_DRIVER_GPU, ZE_INIT_DRIVER_TYPE_FLAG_GPU, 1, 1010) \
	V(TML_DEVICE_TYPE_GPU, ZE_DEVICE_TYPE_GPU, 1, 1000) \
	V(TML_DEVICE_INTEGRATED, ZE_DEVICE_PROPERTY_FLAG_INTEGRATED, 1, 1000) \
	V(TML_GROUP_COMPUTE, ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE, 1, 1000) \
	V(TML_QUEUE_IN_ORDER, ZE_COMMAND_QUEUE_FLAG_IN_ORDER, 2, 1007) \
	V(TML_QUEUE_ASYNCHRONOUS, ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS, 2, 1000) \
	V(TML_POOL_HOST_VISIBLE, ZE_EVENT_POOL_FLAG_HOST_VISIBLE, 1, 1000) \
	V(TML_SCOPE_HOST, ZE_EVENT_SCOPE_FLAG_HOST, 4, 1000) \
	V(TML_MEMORY_TYPE_UNKNOWN, ZE_MEMORY_TYPE_UNKNOWN, 0, 1000) \
	V(TML_MEMORY_TYPE_HOST, ZE_MEMORY_TYPE_HOST, 1, 1000) \
	V(TML_MEMORY_TYPE_DEVICE, ZE_MEMORY_TYPE_DEVICE, 2, 1000) \
	V(TML_DEFER_FREE, ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE, 2, 1003) \
	V(TML_RELAXED_MAX_SIZE, ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE, 1, 1001) \
	V(TML_MEMORY_ON_DEVICE, ZES_MEM_LOC_DEVICE, 1, 1000) \
	V(TML_S_DRIVER_PROPERTIES, ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES, 0x1, 1000) \
	V(TML_S_DEVICE_PROPERTIES, ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES, 0x3, 1000) \
	V(TML_S_GROUP_PROPERTIES, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES, 0x6, 1000) \
	V(TML_S_MEMORY_PROPERTIES, ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES, 0x7, 1000) \
	V(TML_S_CONTEXT_DESC, ZE_STRUCTURE_TYPE_CONTEXT_DESC, 0xd, 1000) \
	V(TML_S_QUEUE_DESC, ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC, 0xe, 1000) \
	V(TML_S_LIST_DESC, ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC, 0xf, 1000) \
	V(TML_S_POOL_DESC, ZE_STRUCTURE_TYPE_EVENT_POOL_DESC, 0x10, 1000) \
	V(TML_S_EVENT_DESC, ZE_STRUCTURE_TYPE_EVENT_DESC, 0x11, 1000) \
	V(TML_S_FENCE_DESC, ZE_STRUCTURE_TYPE_FENCE_DESC, 0x12, 1000) \
	V(TML_S_DEVICE_ALLOC_DESC, ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC, 0x15, 1000) \
	V(TML_S_ALLOCATION_PROPERTIES, ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES, 0x17, 1000) \
	V(TML_S_FREE_PROPERTIES, ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES, 0x10009, 1003) \
	V(TML_S_FREE_DESC, ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC, 0x1000a, 1003) \
	V(TML_S_RELAXED, ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXT_DESC, 0x10016, 1017) \
	V(TML_S_RELAXED_EXP, ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC, 0x20001, 1001) \
	V(TML_S_INIT_DRIVER, ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC, 0x20021, 1010) \
	V(TML_S_USABLE_SIZE, ZE_STRUCTURE_TYPE_DEVICE_USABLEMEM_SIZE_EXT_PROPERTIES, 0x20041, 1015) \
	V(TML_S_SYSMAN_DEVICE, ZES_STRUCTURE_TYPE_DEVICE_PROPERTIES, 0x1, 1000) \
	V(TML_S_SYSMAN_MEMORY, ZES_STRUCTURE_TYPE_MEM_PROPERTIES, 0xb, 1000) \
	V(TML_S_SYSMAN_STATE, ZES_STRUCTURE_TYPE_MEM_STATE, 0x1e, 1000)

#define V(ours, vendor, value, since) ours = value,
enum tml_value { TML_VALUES(V) };
#undef V

/* Checked with our own declarations and with the vendor's: sizes, and where the fields lie that are read or written. */
#define SIZE(type, size) _Static_assert(sizeof(type) == size, "size of " #type);
#define PLACE(type, field, offset) _Static_assert(offsetof(type, field) == offset, "place of " #type "." #field);
SIZE(ze_driver_extension_properties_t, 260)
SIZE(ze_driver_properties_t, 40)
SIZE(ze_driver_memory_free_ext_properties_t, 24) PLACE(ze_driver_memory_free_ext_properties_t, freePolicies, 16)
SIZE(ze_device_properties_t, 368) PLACE(ze_device_properties_t, type, 16) PLACE(ze_device_properties_t, flags, 28)
PLACE(ze_device_properties_t, maxMemAllocSize, 40) PLACE(ze_device_properties_t, uuid, 96) PLACE(ze_device_properties_t, name, 112)
SIZE(ze_device_memory_properties_t, 296) PLACE(ze_device_memory_properties_t, totalSize, 32)
SIZE(ze_command_queue_group_properties_t, 40) PLACE(ze_command_queue_group_properties_t, flags, 16)
PLACE(ze_command_queue_group_properties_t, maxMemoryFillPatternSize, 24)
SIZE(ze_context_desc_t, 24)
SIZE(ze_command_queue_desc_t, 40) PLACE(ze_command_queue_desc_t, ordinal, 16) PLACE(ze_command_queue_desc_t, flags, 24) PLACE(ze_command_queue_desc_t, mode, 28)
SIZE(ze_command_list_desc_t, 24) PLACE(ze_command_list_desc_t, commandQueueGroupOrdinal, 16)
SIZE(ze_fence_desc_t, 24)
SIZE(ze_event_pool_desc_t, 24) PLACE(ze_event_pool_desc_t, flags, 16) PLACE(ze_event_pool_desc_t, count, 20)
SIZE(ze_event_desc_t, 32) PLACE(ze_event_desc_t, index, 16) PLACE(ze_event_desc_t, signal, 20) PLACE(ze_event_desc_t, wait, 24)
SIZE(ze_device_mem_alloc_desc_t, 24) PLACE(ze_device_mem_alloc_desc_t, ordinal, 20)
SIZE(ze_memory_free_ext_desc_t, 24) PLACE(ze_memory_free_ext_desc_t, freePolicy, 16)
SIZE(ze_memory_allocation_properties_t, 40) PLACE(ze_memory_allocation_properties_t, type, 16) PLACE(ze_memory_allocation_properties_t, pageSize, 32)
SIZE(ze_init_driver_type_desc_t, 24) PLACE(ze_init_driver_type_desc_t, flags, 16)
SIZE(ze_device_usablemem_size_ext_properties_t, 24) PLACE(ze_device_usablemem_size_ext_properties_t, currUsableMemSize, 16)
SIZE(zes_uuid_t, 16)
SIZE(zes_device_properties_t, 776) PLACE(zes_device_properties_t, core, 16)
SIZE(zes_mem_properties_t, 48) PLACE(zes_mem_properties_t, onSubdevice, 20) PLACE(zes_mem_properties_t, subdeviceId, 24) PLACE(zes_mem_properties_t, location, 28)
SIZE(zes_mem_state_t, 40) PLACE(zes_mem_state_t, free, 24)
#undef SIZE
#undef PLACE
#endif
