/* What an engine function can answer. Each vendor's ABI translates these into its own numbers (struct soft_abi, calls.h). */
#ifndef SOFT_RESULT_H
#define SOFT_RESULT_H

enum soft_result {
	SOFT_OK,
	SOFT_INVALID_VALUE,
	SOFT_OUT_OF_MEMORY,      /* the device's capacity, or a pool's maximum */
	SOFT_NOT_INITIALIZED,
	SOFT_NO_DEVICE,
	SOFT_INVALID_DEVICE,
	SOFT_INVALID_CONTEXT,
	SOFT_CONTEXT_DESTROYED,
	SOFT_INVALID_HANDLE,
	SOFT_NOT_FOUND,
	SOFT_NOT_READY,
	SOFT_ILLEGAL_ADDRESS,    /* sticky: freed device memory was used */
	SOFT_HOST_REGISTERED,    /* part of the range is registered already */
	SOFT_HOST_NOT_REGISTERED,
	SOFT_OPERATING_SYSTEM,   /* the host refused memory, a mapping or a thread */
	SOFT_NOT_SUPPORTED,
	SOFT_CAPTURE_UNSUPPORTED, /* not allowed while a stream is being captured into a graph */
	SOFT_CAPTURE_INVALIDATED, /* the capture had been broken by such a call */
	SOFT_CAPTURE_IMPLICIT,    /* the legacy stream would have to wait for a stream that is being captured */
	SOFT_RESULTS
};

#endif
