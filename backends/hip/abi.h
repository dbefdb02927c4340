/* The few types and numbers of the HIP runtime API that this backend needs, in declarations of our own: nothing is copied from a vendor's
 * header, and no toolkit is needed to build. Names are the vendor's, so that a build with TMH_VENDOR_HEADER defined to the path of a real
 * hip_runtime_api.h compiles the same code, and the prototypes of symbols.def, against it. */
#ifndef TMH_ABI_H
#define TMH_ABI_H
#include <stddef.h>
#include <stdint.h>

#ifdef TMH_VENDOR_HEADER
#include TMH_VENDOR_HEADER
#else
typedef int hipError_t;
typedef int hipDevice_t;
typedef void *hipDeviceptr_t;
typedef struct ihipStream_t *hipStream_t;
typedef struct ihipEvent_t *hipEvent_t;
typedef struct ihipMemPoolHandle_t *hipMemPool_t;
typedef int hipDeviceAttribute_t;
typedef int hipMemPoolAttr;
typedef int hipMemcpyKind;
typedef int hipStreamCaptureStatus;
typedef int hipStreamCaptureMode;
typedef struct { char bytes[16]; } hipUUID;
typedef struct { int type, id; } hipMemLocation;
typedef struct {
	int allocType, handleTypes;
	hipMemLocation location;
	void *win32SecurityAttributes;
	unsigned char reserved[64]; /* from 6 on its first eight bytes are a largest size, 0: no limit */
} hipMemPoolProps;
typedef struct {
	int type, device; /* the kind of memory first, in all versions */
	void *devicePointer, *hostPointer;
	int isManaged;
	unsigned int allocationFlags;
} hipPointerAttribute_t;
#endif

/* V(our name, the vendor's name, value) */
#define TMH_VALUES(V) \
	V(TMH_INVALID_VALUE, hipErrorInvalidValue, 1) \
	V(TMH_OUT_OF_MEMORY, hipErrorOutOfMemory, 2) \
	V(TMH_NOT_INITIALIZED, hipErrorNotInitialized, 3) \
	V(TMH_DEINITIALIZED, hipErrorDeinitialized, 4) \
	V(TMH_INVALID_DEVICE_POINTER, hipErrorInvalidDevicePointer, 17) \
	V(TMH_INSUFFICIENT_DRIVER, hipErrorInsufficientDriver, 35) \
	V(TMH_NO_DEVICE, hipErrorNoDevice, 100) \
	V(TMH_INVALID_DEVICE, hipErrorInvalidDevice, 101) \
	V(TMH_INVALID_CONTEXT, hipErrorInvalidContext, 201) \
	V(TMH_ECC_NOT_CORRECTABLE, hipErrorECCNotCorrectable, 214) \
	V(TMH_OPERATING_SYSTEM, hipErrorOperatingSystem, 304) \
	V(TMH_INVALID_HANDLE, hipErrorInvalidHandle, 400) \
	V(TMH_NOT_FOUND, hipErrorNotFound, 500) \
	V(TMH_NOT_READY, hipErrorNotReady, 600) \
	V(TMH_ILLEGAL_ADDRESS, hipErrorIllegalAddress, 700) \
	V(TMH_LAUNCH_TIME_OUT, hipErrorLaunchTimeOut, 702) \
	V(TMH_CONTEXT_IS_DESTROYED, hipErrorContextIsDestroyed, 709) \
	V(TMH_ASSERT, hipErrorAssert, 710) \
	V(TMH_LAUNCH_FAILURE, hipErrorLaunchFailure, 719) \
	V(TMH_NOT_SUPPORTED, hipErrorNotSupported, 801) \
	V(TMH_STREAM_CAPTURE_UNSUPPORTED, hipErrorStreamCaptureUnsupported, 900) \
	V(TMH_STREAM_CAPTURE_WRONG_THREAD, hipErrorStreamCaptureWrongThread, 908) \
	V(TMH_UNKNOWN, hipErrorUnknown, 999) \
	V(TMH_ATTRIBUTE_INTEGRATED, hipDeviceAttributeIntegrated, 16) \
	V(TMH_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, hipDeviceAttributeMemoryPoolsSupported, 88) \
	V(TMH_STREAM_NON_BLOCKING, hipStreamNonBlocking, 1) \
	V(TMH_EVENT_DISABLE_TIMING, hipEventDisableTiming, 2) \
	V(TMH_CAPTURE_STATUS_NONE, hipStreamCaptureStatusNone, 0) \
	V(TMH_CAPTURE_MODE_RELAXED, hipStreamCaptureModeRelaxed, 2) \
	V(TMH_ALLOCATION_TYPE_PINNED, hipMemAllocationTypePinned, 1) \
	V(TMH_LOCATION_TYPE_DEVICE, hipMemLocationTypeDevice, 1) \
	V(TMH_POOL_RELEASE_THRESHOLD, hipMemPoolAttrReleaseThreshold, 4) \
	V(TMH_POOL_RESERVED_CURRENT, hipMemPoolAttrReservedMemCurrent, 5) \
	V(TMH_POOL_USED_CURRENT, hipMemPoolAttrUsedMemCurrent, 7) \
	V(TMH_HOST_TO_DEVICE, hipMemcpyHostToDevice, 1) \
	V(TMH_DEVICE_TO_HOST, hipMemcpyDeviceToHost, 2) \
	V(TMH_DEVICE_TO_DEVICE, hipMemcpyDeviceToDevice, 3)

#define V(ours, vendor, value) ours = value,
enum tmh_value { TMH_VALUES(V) };
#undef V

_Static_assert(sizeof(hipDeviceptr_t) == 8, "64-bit device addresses");
_Static_assert(sizeof(hipPointerAttribute_t) == 32 && offsetof(hipPointerAttribute_t, device) == 4 && offsetof(hipPointerAttribute_t, isManaged) == 24,
               "layout of hipPointerAttribute_t, as in the headers of HIP 5 to 7");
_Static_assert(sizeof(hipMemPoolProps) == 88 && offsetof(hipMemPoolProps, location) == 8 && offsetof(hipMemPoolProps, win32SecurityAttributes) == 16,
               "layout of hipMemPoolProps, as in the headers of HIP 5 to 7");
#endif
