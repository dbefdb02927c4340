/* The C ABI of DLPack 1.0 (https://dmlc.github.io/dlpack/latest/c_api.html): what crosses to other libraries in a capsule. Written after the
 * specification; names are its names. */
#ifndef TM_DLPACK_H
#define TM_DLPACK_H
#include <stdint.h>

enum { kDLCPU = 1, kDLCUDA = 2, kDLROCM = 10, kDLOneAPI = 14 };
enum { kDLUInt = 1 };
#define DLPACK_FLAG_BITMASK_IS_COPIED ((uint64_t)2)

typedef struct {
	int32_t device_type;
	int32_t device_id;
} DLDevice;

typedef struct {
	uint8_t code;
	uint8_t bits;
	uint16_t lanes;
} DLDataType;

typedef struct {
	void *data;
	DLDevice device;
	int32_t ndim;
	DLDataType dtype;
	int64_t *shape;
	int64_t *strides;
	uint64_t byte_offset;
} DLTensor;

typedef struct DLManagedTensor {
	DLTensor dl_tensor;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensor *self);
} DLManagedTensor;

typedef struct DLManagedTensorVersioned {
	struct {
		uint32_t major;
		uint32_t minor;
	} version;
	void *manager_ctx;
	void (*deleter)(struct DLManagedTensorVersioned *self);
	uint64_t flags;
	DLTensor dl_tensor;
} DLManagedTensorVersioned;

_Static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 && sizeof(DLManagedTensorVersioned) == 80, "DLPack's layout on 64-bit machines");
#endif
