/* The few types of the HIP runtime API that we need, declared by us (nothing is copied from AMD's headers). The sources also compile
 * against the vendor's own header instead (SOFT_VENDOR_HEADER): then every type, and every function we define, must agree with it. */
#ifndef SOFT_HIP_TYPES_H
#define SOFT_HIP_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef SOFT_VENDOR_HEADER
#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#else
typedef enum { hipSuccess = 0, SOFT_HIP_ERROR_ = 0x7fffffff } hipError_t;
typedef int hipDevice_t;
typedef void *hipDeviceptr_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipGraph *hipGraph_t;
typedef struct ihipMemPoolHandle_t *hipMemPool_t;
typedef struct { char bytes[16]; } hipUUID;
typedef enum { SOFT_DEVICE_ATTRIBUTE_ = 0 } hipDeviceAttribute_t;
typedef enum { SOFT_POOL_ATTRIBUTE_ = 0 } hipMemPoolAttr;
typedef enum { SOFT_MEMCPY_KIND_ = 0 } hipMemcpyKind;
typedef enum { SOFT_CAPTURE_STATUS_ = 0 } hipStreamCaptureStatus;
typedef enum { SOFT_CAPTURE_MODE_ = 0 } hipStreamCaptureMode;
typedef enum { SOFT_ACCESS_FLAGS_ = 0 } hipMemAccessFlags;
typedef enum { SOFT_MEMORY_TYPE_ = 0 } hipMemoryType;
typedef struct { int type, id; } hipMemLocation;
typedef struct {
	int allocType, handleTypes;
	hipMemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize; /* before HIP 6: reserved, and must be 0 */
	unsigned char reserved[56];
} hipMemPoolProps;
typedef struct { hipMemLocation location; int flags; } hipMemAccessDesc;
typedef struct {
	hipMemoryType type; /* named memoryType before HIP 6 */
	int device;
	void *devicePointer, *hostPointer;
	int isManaged;
	unsigned allocationFlags;
} hipPointerAttribute_t;
typedef void (*hipHostFn_t)(void *);
#endif

/* The vendor's numbers under names of our own: V_hipErrorInvalidValue and so on. */
#define V(name, value) V_##name = value,
#define V6(name, value) V(name, value)
#define S(type, size)
#define O(type, member, offset)
#define O6(type, member, offset)
enum {
#include "values.def"
};
#undef V
#undef V6
#undef S
#undef O
#undef O6

#ifndef SOFT_VENDOR_HEADER
#define F(symbol, since, result, parameters) __attribute__((visibility("default"))) result symbol parameters;
#include "functions.def"
#undef F
#endif

#endif
