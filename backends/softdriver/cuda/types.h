/* The few types of the CUDA driver API that we need, declared by us (nothing is copied from NVIDIA's header). The sources also compile
 * against the vendor's own header instead (SOFT_VENDOR_HEADER): then every type, and every function we define, must agree with it. */
#ifndef SOFT_CUDA_TYPES_H
#define SOFT_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef SOFT_VENDOR_HEADER
#define __CUDA_API_VERSION_INTERNAL 1 /* declares every version of every function under its exported name */
#include <cuda.h>
#else
typedef enum { CUDA_SUCCESS = 0, SOFT_CURESULT_ = 0x7fffffff } CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef uint64_t cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct { char bytes[16]; } CUuuid;
typedef enum { SOFT_DEVICE_ATTRIBUTE_ = 0 } CUdevice_attribute;
typedef enum { SOFT_POINTER_ATTRIBUTE_ = 0 } CUpointer_attribute;
typedef enum { SOFT_POOL_ATTRIBUTE_ = 0 } CUmemPool_attribute;
typedef enum { SOFT_PROC_RESULT_ = 0 } CUdriverProcAddressQueryResult;
typedef enum { SOFT_CAPTURE_STATUS_ = 0 } CUstreamCaptureStatus;
typedef enum { SOFT_CAPTURE_MODE_ = 0 } CUstreamCaptureMode;
typedef enum { SOFT_ACCESS_FLAGS_ = 0 } CUmemAccess_flags;
typedef struct { int type, id; } CUmemLocation;
typedef struct {
	int allocType, handleTypes;
	CUmemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	unsigned short usage;
	unsigned char reserved[54];
} CUmemPoolProps;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
typedef void (*CUhostFn)(void *);
typedef void (*CUstreamCallback)(CUstream, CUresult, void *);
#endif

/* The vendor's numbers under names of our own: V_CUDA_ERROR_INVALID_VALUE and so on. */
#define V(name, value) V_##name = value,
#define S(type, size)
#define O(type, member, offset)
enum {
#include "values.def"
};
#undef V
#undef S
#undef O

#ifndef SOFT_VENDOR_HEADER
#define F(symbol, base, version, parameters) __attribute__((visibility("default"))) CUresult symbol parameters;
#include "functions.def"
#undef F
#endif

#endif
