/* The few types and numbers of the CUDA driver API that this backend needs, in declarations of our own: nothing is copied from a
 * vendor's header, and no toolkit is needed to build. Names are the vendor's, so that a build with TMC_VENDOR_HEADER defined to the
 * path of a real cuda.h compiles the same code, and the prototypes of symbols.def, against it.
 *
 * The software driver has declarations of its own (softdriver/cuda/types.h), on purpose, as for Level Zero: see levelzero/abi.h. */
#ifndef TMC_ABI_H
#define TMC_ABI_H
#include <stddef.h>
#include <stdint.h>

#ifdef TMC_VENDOR_HEADER
#include TMC_VENDOR_HEADER
#else
typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef int CUdevice_attribute;
typedef int CUmemPool_attribute;
typedef int CUpointer_attribute;
typedef int CUstreamCaptureStatus;
typedef int CUstreamCaptureMode;
typedef struct { char bytes[16]; } CUuuid;
typedef struct { int type, id; } CUmemLocation;
typedef struct {
	int allocType, handleTypes;
	CUmemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	unsigned short usage;
	unsigned char reserved[54];
} CUmemPoolProps;
#endif

/* V(our name, the vendor's name, value) */
#define TMC_VALUES(V) \
	V(TMC_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE, 1) \
	V(TMC_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, 2) \
	V(TMC_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED, 4) \
	V(TMC_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY, 34) \
	V(TMC_NO_DEVICE, CUDA_ERROR_NO_DEVICE, 100) \
	V(TMC_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE, 101) \
	V(TMC_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT, 201) \
	V(TMC_ECC_UNCORRECTABLE, CUDA_ERROR_ECC_UNCORRECTABLE, 214) \
	V(TMC_NVLINK_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE, 220) \
	V(TMC_CONTAINED, CUDA_ERROR_CONTAINED, 226) \
	V(TMC_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE, 400) \
	V(TMC_NOT_FOUND, CUDA_ERROR_NOT_FOUND, 500) \
	V(TMC_NOT_READY, CUDA_ERROR_NOT_READY, 600) \
	V(TMC_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS, 700) \
	V(TMC_LAUNCH_TIMEOUT, CUDA_ERROR_LAUNCH_TIMEOUT, 702) \
	V(TMC_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED, 709) \
	V(TMC_ASSERT, CUDA_ERROR_ASSERT, 710) \
	V(TMC_HARDWARE_STACK_ERROR, CUDA_ERROR_HARDWARE_STACK_ERROR, 714) \
	V(TMC_ILLEGAL_INSTRUCTION, CUDA_ERROR_ILLEGAL_INSTRUCTION, 715) \
	V(TMC_MISALIGNED_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS, 716) \
	V(TMC_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_ADDRESS_SPACE, 717) \
	V(TMC_INVALID_PC, CUDA_ERROR_INVALID_PC, 718) \
	V(TMC_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED, 719) \
	V(TMC_TENSOR_MEMORY_LEAK, CUDA_ERROR_TENSOR_MEMORY_LEAK, 721) \
	V(TMC_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED, 801) \
	V(TMC_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY, 802) \
	V(TMC_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803) \
	V(TMC_COMPAT_NOT_SUPPORTED_ON_DEVICE, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804) \
	V(TMC_MPS_CLIENT_TERMINATED, CUDA_ERROR_MPS_CLIENT_TERMINATED, 810) \
	V(TMC_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900) \
	V(TMC_CAPTURED_EVENT, CUDA_ERROR_CAPTURED_EVENT, 907) \
	V(TMC_EXTERNAL_DEVICE, CUDA_ERROR_EXTERNAL_DEVICE, 911) \
	V(TMC_ATTRIBUTE_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED, 18) \
	V(TMC_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115) \
	V(TMC_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING, 1) \
	V(TMC_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING, 2) \
	V(TMC_CAPTURE_STATUS_NONE, CU_STREAM_CAPTURE_STATUS_NONE, 0) \
	V(TMC_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED, 2) \
	V(TMC_ALLOCATION_TYPE_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED, 1) \
	V(TMC_LOCATION_TYPE_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE, 1) \
	V(TMC_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2) \
	V(TMC_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED, 8) \
	V(TMC_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST, 1) \
	V(TMC_POOL_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4) \
	V(TMC_POOL_RESERVED_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, 5) \
	V(TMC_POOL_USED_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, 7)

#define V(ours, vendor, value) ours = value,
enum tmc_value { TMC_VALUES(V) };
#undef V

_Static_assert(sizeof(CUdeviceptr) == 8, "64-bit device addresses");
_Static_assert(sizeof(CUmemPoolProps) == 88 && offsetof(CUmemPoolProps, location) == 8 && offsetof(CUmemPoolProps, maxSize) == 24,
               "layout of CUmemPoolProps, as in the headers of CUDA 12 and 13");
#endif
