#include "device.h"
#include <string.h>

/* Host copies: the documentation of a pageable copy differs between versions. It may return only after the queued work and the copy
 * are done (up to CUDA 11), or early, with the data still under way. So nothing here relies on either: each waits for the stream. */

static tmc_status begin(tmc_device *d, tmc_guard *guard) {
	tmc_status status = tmc_enter(d, guard);
	if (status.code) return status;
	status = tmc_not_capturing(d, d->stream);
	return status.code ? tmc_first(status, tmc_leave(d, guard)) : status;
}

tmc_status tmc_copy_out(tmc_device *d, void *host, uint64_t address, uint64_t bytes) {
	tmc_guard guard;
	tmc_status status = begin(d, &guard);
	if (status.code) return status;
	status = TMC_TRY(d, cuMemcpyDtoHAsync_v2, host, address, bytes, d->stream);
	if (!status.code) status = tmc_settle(d, d->stream);
	return tmc_first(status, tmc_leave(d, &guard));
}

tmc_status tmc_copy_in(tmc_device *d, uint64_t address, const void *host, uint64_t bytes) {
	tmc_guard guard;
	tmc_status status = begin(d, &guard);
	if (status.code) return status;
	status = TMC_TRY(d, cuMemcpyHtoDAsync_v2, address, host, bytes, d->stream);
	if (!status.code) status = tmc_settle(d, d->stream);
	return tmc_first(status, tmc_leave(d, &guard));
}

tmc_status tmc_copy_within(tmc_device *d, uint64_t destination, uint64_t source, uint64_t bytes) {
	tmc_guard guard;
	tmc_status status = begin(d, &guard);
	if (status.code) return status;
	status = TMC_TRY(d, cuMemcpyDtoDAsync_v2, destination, source, bytes, d->stream);
	return tmc_first(status, tmc_leave(d, &guard));
}

tmc_status tmc_move_in_steps(tmc_device *d, uint64_t destination, uint64_t source, uint64_t bytes) {
	tmc_guard guard;
	tmc_status status = begin(d, &guard);
	if (status.code) return status;
	/* A step as long as the distance touches two ranges that only meet. The order is memmove's: what a step overwrites has been read. */
	bool upwards = destination > source;
	uint64_t step = upwards ? destination - source : source - destination;
	for (uint64_t done = 0; done < bytes && !status.code;) {
		uint64_t n = bytes - done < step ? bytes - done : step;
		uint64_t offset = upwards ? bytes - done - n : done;
		status = TMC_TRY(d, cuMemcpyDtoDAsync_v2, destination + offset, source + offset, n, d->stream);
		done += n;
	}
	return tmc_first(status, tmc_leave(d, &guard));
}

/* ---- fill */

/* Writes the first `bytes` (a few) of a pattern, 4 at a time where the address allows. */
static tmc_status write_few(tmc_device *d, uint64_t address, const uint8_t *pattern, uint64_t bytes) {
	tmc_status status = TMC_OK;
	for (uint64_t i = 0; i < bytes && !status.code;) {
		if (bytes - i >= 4 && (address + i) % 4 == 0) {
			uint32_t word;
			memcpy(&word, pattern + i, 4);
			status = TMC_TRY(d, cuMemsetD32Async, address + i, word, 1, d->stream);
			i += 4;
		} else {
			status = TMC_TRY(d, cuMemsetD8Async, address + i, pattern[i], 1, d->stream);
			i++;
		}
	}
	return status;
}

tmc_status tmc_fill(tmc_device *d, uint64_t address, uint64_t low, uint64_t high, uint32_t period, uint64_t bytes) {
	uint8_t pattern[16];
	memcpy(pattern, &low, 8);
	memcpy(pattern + 8, &high, 8);
	tmc_guard guard;
	tmc_status status = begin(d, &guard);
	if (status.code) return status;
	uint64_t done = 0;
	if (period == 1) {
		status = TMC_TRY(d, cuMemsetD8Async, address, pattern[0], bytes, d->stream);
		done = bytes;
	} else if ((period == 2 || period == 4) && address % period == 0 && bytes >= period) {
		uint32_t word = 0;
		memcpy(&word, pattern, period);
		done = bytes / period * period;
		if (period == 2) status = TMC_TRY(d, cuMemsetD16Async, address, (unsigned short)word, bytes / 2, d->stream);
		else status = TMC_TRY(d, cuMemsetD32Async, address, word, bytes / 4, d->stream);
		if (!status.code) status = write_few(d, address + done, pattern, bytes - done);
		done = bytes;
	} else {
		/* One repetition is written on the device itself, so that no host memory has to outlive the queue; then what is there is
		 * doubled. Source and destination of a doubling only meet. */
		done = bytes < period ? bytes : period;
		status = write_few(d, address, pattern, done);
	}
	while (done < bytes && !status.code) {
		uint64_t n = bytes - done < done ? bytes - done : done;
		status = TMC_TRY(d, cuMemcpyDtoDAsync_v2, address + done, address, n, d->stream);
		done += n;
	}
	return tmc_first(status, tmc_leave(d, &guard));
}

/* ---- order between streams */

tmc_status tmc_join(tmc_device *d, CUstream from, CUstream to) {
	tmc_guard guard;
	tmc_status status = tmc_enter(d, &guard);
	if (status.code) return status;
	status = tmc_first(tmc_not_capturing(d, from), tmc_not_capturing(d, to));
	tmc_pending *node = status.code ? NULL : tmc_take_node(d);
	if (node) {
		status = tmc_make_event(d, node);
		if (!status.code) status = TMC_TRY(d, cuEventRecord, node->event, from);
		/* The wait takes the event's record of now; the event may be recorded anew at once. */
		if (!status.code) status = TMC_TRY(d, cuStreamWaitEvent, to, node->event, 0);
		tmc_put_node(d, node);
	} else if (!status.code) {  /* no host memory for a node: waiting here is the same order, only slower */
		status = TMC_TRY(d, cuStreamSynchronize, from);
	}
	return tmc_first(status, tmc_leave(d, &guard));
}
