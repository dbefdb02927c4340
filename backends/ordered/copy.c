#include "device.h"
#include <string.h>

/* Host copies: what is documented of a pageable copy differs between vendors and versions. It may return only after the queued work and the
 * copy are done (HIP; CUDA up to 11), or early, with the data still under way. So nothing here relies on either: each waits for the stream. */

static tmo_status begin(tmo_device *d, tmo_guard *guard) {
	tmo_status status = tmo_enter(d, guard);
	if (status.code) return status;
	status = tmo_not_capturing(d, d->stream);
	return status.code ? tmo_first(status, tmo_leave(d, guard)) : status;
}

tmo_status tmo_copy_out(tmo_device *d, void *host, uint64_t address, uint64_t bytes) {
	tmo_guard guard;
	tmo_status status = begin(d, &guard);
	if (status.code) return status;
	status = TMO_CALL(d, copy_out, host, address, bytes, d->stream);
	if (!status.code) status = tmo_settle(d, d->stream);
	return tmo_first(status, tmo_leave(d, &guard));
}

tmo_status tmo_copy_in(tmo_device *d, uint64_t address, const void *host, uint64_t bytes) {
	tmo_guard guard;
	tmo_status status = begin(d, &guard);
	if (status.code) return status;
	status = TMO_CALL(d, copy_in, address, host, bytes, d->stream);
	if (!status.code) status = tmo_settle(d, d->stream);
	return tmo_first(status, tmo_leave(d, &guard));
}

tmo_status tmo_copy_within(tmo_device *d, uint64_t destination, uint64_t source, uint64_t bytes) {
	tmo_guard guard;
	tmo_status status = begin(d, &guard);
	if (status.code) return status;
	status = TMO_CALL(d, copy_within, destination, source, bytes, d->stream);
	return tmo_first(status, tmo_leave(d, &guard));
}

tmo_status tmo_move_in_steps(tmo_device *d, uint64_t destination, uint64_t source, uint64_t bytes) {
	tmo_guard guard;
	tmo_status status = begin(d, &guard);
	if (status.code) return status;
	/* A step as long as the distance touches two ranges that only meet. The order is memmove's: what a step overwrites has been read. */
	bool upwards = destination > source;
	uint64_t step = upwards ? destination - source : source - destination;
	for (uint64_t done = 0; done < bytes && !status.code;) {
		uint64_t n = bytes - done < step ? bytes - done : step;
		uint64_t offset = upwards ? bytes - done - n : done;
		status = TMO_CALL(d, copy_within, destination + offset, source + offset, n, d->stream);
		done += n;
	}
	return tmo_first(status, tmo_leave(d, &guard));
}

/* ---- fill */

/* Writes the first `bytes` (a few) of a pattern, 4 at a time where the address allows. */
static tmo_status write_few(tmo_device *d, uint64_t address, const uint8_t *pattern, uint64_t bytes) {
	tmo_status status = TMO_OK;
	for (uint64_t i = 0; i < bytes && !status.code;) {
		if (bytes - i >= 4 && (address + i) % 4 == 0) {
			uint32_t word;
			memcpy(&word, pattern + i, 4);
			status = TMO_CALL(d, fill32, address + i, word, 1, d->stream);
			i += 4;
		} else {
			status = TMO_CALL(d, fill8, address + i, pattern[i], 1, d->stream);
			i++;
		}
	}
	return status;
}

tmo_status tmo_fill(tmo_device *d, uint64_t address, uint64_t low, uint64_t high, uint32_t period, uint64_t bytes) {
	uint8_t pattern[16];
	memcpy(pattern, &low, 8);
	memcpy(pattern + 8, &high, 8);
	tmo_guard guard;
	tmo_status status = begin(d, &guard);
	if (status.code) return status;
	uint64_t done = 0;
	if (period == 1) {
		status = TMO_CALL(d, fill8, address, pattern[0], bytes, d->stream);
		done = bytes;
	} else if ((period == 2 || period == 4) && address % period == 0 && bytes >= period) {
		uint32_t word = 0;
		memcpy(&word, pattern, period);
		done = bytes / period * period;
		if (period == 2) status = TMO_CALL(d, fill16, address, (uint16_t)word, bytes / 2, d->stream);
		else status = TMO_CALL(d, fill32, address, word, bytes / 4, d->stream);
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
		status = TMO_CALL(d, copy_within, address + done, address, n, d->stream);
		done += n;
	}
	return tmo_first(status, tmo_leave(d, &guard));
}

/* ---- order between streams */

tmo_status tmo_join(tmo_device *d, uint64_t from, uint64_t to) {
	tmo_guard guard;
	tmo_status status = tmo_enter(d, &guard);
	if (status.code) return status;
	status = tmo_first(tmo_not_capturing(d, from), tmo_not_capturing(d, to));
	tmo_pending *node = status.code ? NULL : tmo_take_node(d);
	if (node) {
		status = tmo_make_event(d, node);
		if (!status.code) status = TMO_CALL(d, event_record, node->event, from);
		/* The wait takes the event's record of now; the event may be recorded anew at once. */
		if (!status.code) status = TMO_CALL(d, stream_wait, to, node->event);
		tmo_put_node(d, node);
	} else if (!status.code) {  /* no host memory for a node: waiting here is the same order, only slower */
		status = TMO_CALL(d, stream_synchronize, from);
	}
	return tmo_first(status, tmo_leave(d, &guard));
}

tmo_status tmo_passed(tmo_device *d, uint64_t stream) {
	tmo_guard guard;
	tmo_status status = tmo_enter(d, &guard);
	if (status.code) return status;
	if (!stream) stream = d->stream;
	status = tmo_not_capturing(d, stream);
	if (!status.code) status = TMO_CALL(d, stream_query, stream);
	return tmo_first(status, tmo_leave(d, &guard));
}

tmo_status tmo_finish(tmo_device *d) {
	tmo_guard guard;
	tmo_status status = tmo_enter(d, &guard);
	if (status.code) return status;
	status = TMO_CALL(d, finish);
	return tmo_first(status, tmo_leave(d, &guard));
}
