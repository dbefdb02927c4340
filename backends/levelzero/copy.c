#include "device.h"
#include <stdlib.h>
#include <string.h>

/* Copies and fills. Each begins, appends what it needs, and ends; see tml_begin. */

#define AT(address) ((void *)(uintptr_t)(address))

static tml_status append_copy(tml_device *d, tml_work *work, void *destination, const void *source, uint64_t bytes) {
	return TML_TRY(d->api, zeCommandListAppendMemoryCopy, work->list, destination, source, bytes, NULL, 0, NULL);
}

static tml_status copy(tml_device *d, uint64_t address, void *destination, const void *source, uint64_t bytes, bool wait) {
	tml_work work;
	tml_status status = tml_begin(d, &work, address);
	return status.code ? status : tml_end(d, &work, append_copy(d, &work, destination, source, bytes), wait);
}

tml_status tml_copy_out(tml_device *d, void *host, uint64_t address, uint64_t bytes) { return copy(d, address, host, AT(address), bytes, true); }

tml_status tml_copy_in(tml_device *d, uint64_t address, const void *host, uint64_t bytes) { return copy(d, address, AT(address), host, bytes, true); }

/* From memory of one context to memory of another: no list may touch both, so it goes over the host. */
static tml_status copy_across(tml_device *d, uint64_t destination, uint64_t source, uint64_t bytes) {
	enum { PIECE = 4 << 20 };
	uint64_t most = bytes < PIECE ? bytes : PIECE;
	void *host = malloc(most);
	tml_status status = host ? TML_OK : (tml_status){ TML_OUT_OF_HOST_MEMORY, TML_CALL_zeCommandListAppendMemoryCopy };
	for (uint64_t done = 0; done < bytes && !status.code;) {
		uint64_t n = bytes - done < most ? bytes - done : most;
		status = tml_copy_out(d, host, source + done, n);
		if (!status.code) status = tml_copy_in(d, destination + done, host, n);
		done += n;
	}
	free(host);
	return status;
}

tml_status tml_copy_apart(tml_device *d, uint64_t destination, uint64_t source, uint64_t bytes) {
	bool to = true, from = true;  /* in the context of now */
	tml_status status = TML_OK;
	if (tml_two_contexts(d)) {
		status = tml_lies_in(d, d->now->context, destination, &to);
		if (!status.code) status = tml_lies_in(d, d->now->context, source, &from);
	}
	if (status.code) return status;
	return to != from ? copy_across(d, destination, source, bytes) : copy(d, destination, AT(destination), AT(source), bytes, false);
}

tml_status tml_copy_in_steps(tml_device *d, uint64_t destination, uint64_t source, uint64_t bytes) {
	tml_work work;
	tml_status status = tml_begin(d, &work, destination);
	if (status.code) return status;
	/* A step as long as the distance touches two ranges that only meet. The order is memmove's: what a step overwrites has been read. */
	bool upwards = destination > source;
	uint64_t step = upwards ? destination - source : source - destination;
	for (uint64_t done = 0; done < bytes && !status.code;) {
		uint64_t n = bytes - done < step ? bytes - done : step;
		uint64_t offset = upwards ? bytes - done - n : done;
		if (done) status = tml_then(d, &work);
		if (!status.code) status = append_copy(d, &work, AT(destination + offset), AT(source + offset), n);
		done += n;
	}
	return tml_end(d, &work, status, false);
}

/* ---- fill
 *
 * The library fills with patterns whose length is a power of two, up to a limit; the address is a multiple of it, and so is the length of
 * the range. The pattern is read when the command is appended. */

static tml_status append_fill(tml_device *d, tml_work *work, uint64_t address, const uint8_t *pattern, uint32_t period, uint64_t bytes) {
	return bytes ? TML_TRY(d->api, zeCommandListAppendMemoryFill, work->list, AT(address), pattern, period, bytes, NULL, 0, NULL) : TML_OK;
}

/* Writes a few bytes, in the largest pieces that the address allows. */
static tml_status write_few(tml_device *d, tml_work *work, uint64_t address, const uint8_t *content, uint64_t bytes) {
	tml_status status = TML_OK;
	for (uint64_t i = 0; i < bytes && !status.code;) {
		uint32_t piece = d->facts.longest_pattern;
		while (piece > bytes - i || (address + i) % piece) piece /= 2;
		status = append_fill(d, work, address + i, content + i, piece, piece);
		i += piece;
	}
	return status;
}

tml_status tml_fill(tml_device *d, uint64_t address, uint64_t low, uint64_t high, uint32_t period, uint64_t bytes) {
	uint8_t pattern[32];  /* with a second repetition, so that it can be read from any byte of the first on */
	memcpy(pattern, &low, 8);
	memcpy(pattern + 8, &high, 8);
	memcpy(pattern + period, pattern, period);
	tml_work work;
	tml_status status = tml_begin(d, &work, address);
	if (status.code) return status;
	if (!(period & (period - 1)) && period <= d->facts.longest_pattern) {
		/* Up to the next multiple of the period byte by byte or so, then one fill with the pattern turned by as much, then the rest. */
		uint64_t head = (period - address % period) % period;
		if (head > bytes) head = bytes;
		uint64_t middle = (bytes - head) / period * period, tail = bytes - head - middle;
		const uint8_t *turned = pattern + head % period;
		status = write_few(d, &work, address, pattern, head);
		if (!status.code) status = append_fill(d, &work, address + head, turned, period, middle);
		if (!status.code) status = write_few(d, &work, address + head + middle, turned, tail);
		return tml_end(d, &work, status, false);
	}
	/* One repetition is written on the device itself, so that no host memory has to outlive the queue; then what is there is doubled.
	 * Source and destination of a doubling only meet. */
	uint64_t done = bytes < period ? bytes : period;
	status = write_few(d, &work, address, pattern, done);
	while (done < bytes && !status.code) {
		uint64_t n = bytes - done < done ? bytes - done : done;
		status = tml_then(d, &work);
		if (!status.code) status = append_copy(d, &work, AT(address + done), AT(address), n);
		done += n;
	}
	return tml_end(d, &work, status, false);
}

/* ---- order between lists */

tml_status tml_join(tml_device *d, ze_command_list_handle_t from, ze_command_list_handle_t to) {
	if (!from || from == d->now->list) from = d->host;
	if (!to || to == d->now->list) to = d->host;
	if (from == to) return TML_OK;  /* a list is in order with itself, and our work with its host's list */
	tml_status status = to ? tml_check_immediate(d, to) : TML_OK;  /* it is not used here, and what is wrong with it should be told before the host's work is */
	if (status.code) return status;
	/* What was done when the host looked comes before whatever anybody queues later, and nothing has to be appended to a list that belongs
	 * to others. */
	return from ? tml_wait_for(d, from, UINT64_MAX) : tml_wait(d, d->now);
}

tml_status tml_wait_until(tml_device *d, ze_command_list_handle_t list, uint64_t nanoseconds) {
	if (!list || list == d->now->list) list = d->host;
	if (list) return tml_wait_for(d, list, nanoseconds);
	tml_stream *s = d->now;
	return s->list ? TML_TRY(d->api, zeCommandListHostSynchronize, s->list, nanoseconds) : TML_TRY(d->api, zeCommandQueueSynchronize, s->queue, nanoseconds);
}
