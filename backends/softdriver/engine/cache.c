#include "cache.h"

#include "device.h"
#include "record.h"
#include "stream.h"

static struct soft_piece *spare_pieces;

static struct soft_piece *piece_new(void)
{
	if (!spare_pieces) {
		enum { BATCH = 512 };
		struct soft_piece *batch = soft_records(BATCH, sizeof *batch);
		for (int i = 0; i < BATCH; i++) {
			batch[i].newer = spare_pieces;
			spare_pieces = &batch[i];
		}
	}
	struct soft_piece *piece = spare_pieces;
	spare_pieces = piece->newer;
	return piece;
}

static void piece_discard(struct soft_piece *piece)
{
	piece->newer = spare_pieces;
	spare_pieces = piece;
}

static struct soft_piece **bin_of(struct soft_cache *cache, uint64_t bytes)
{
	return &cache->bins[(bytes / SOFT_GRANULE * 0x9e3779b97f4a7c15ull) >> 56];
}

static void bin_insert(struct soft_cache *cache, struct soft_piece *piece)
{
	struct soft_piece **head = bin_of(cache, piece->bytes);
	piece->bin_before = NULL;
	piece->bin_after = *head;
	if (*head)
		(*head)->bin_before = piece;
	*head = piece;
}

static void bin_remove(struct soft_cache *cache, struct soft_piece *piece)
{
	if (piece->bin_before)
		piece->bin_before->bin_after = piece->bin_after;
	else
		*bin_of(cache, piece->bytes) = piece->bin_after;
	if (piece->bin_after)
		piece->bin_after->bin_before = piece->bin_before;
}

void soft_cache_add(struct soft_cache *cache, uint64_t bytes, uint64_t sequence, struct soft_block *block)
{
	struct soft_piece *piece = piece_new();
	*piece = (struct soft_piece){ .bytes = bytes, .sequence = sequence, .block = block };
	piece->older = cache->newest;
	if (cache->newest)
		cache->newest->newer = piece;
	else
		cache->oldest = piece;
	cache->newest = piece;
	cache->bytes += piece->bytes;
	bin_insert(cache, piece);
}

void soft_cache_remove(struct soft_cache *cache, struct soft_piece *piece)
{
	if (piece->older)
		piece->older->newer = piece->newer;
	else
		cache->oldest = piece->newer;
	if (piece->newer)
		piece->newer->older = piece->older;
	else
		cache->newest = piece->older;
	cache->bytes -= piece->bytes;
	bin_remove(cache, piece);
	piece_discard(piece);
}

struct soft_piece *soft_cache_exact(struct soft_cache *cache, uint64_t bytes, uint64_t limit)
{
	int looks = 64; /* other sizes may share the bin */
	for (struct soft_piece *piece = *bin_of(cache, bytes); piece && looks--; piece = piece->bin_after)
		if (piece->bytes == bytes && piece->sequence <= limit)
			return piece;
	return NULL;
}

uint64_t soft_cache_usable(const struct soft_cache *cache, uint64_t limit, uint64_t enough)
{
	if (limit == UINT64_MAX)
		return cache->bytes;
	uint64_t sum = 0;
	for (const struct soft_piece *piece = cache->oldest; piece && piece->sequence <= limit && sum < enough; piece = piece->newer)
		sum += piece->bytes;
	return sum;
}

uint64_t soft_cache_consume(struct soft_cache *cache, uint64_t bytes, uint64_t limit)
{
	uint64_t taken = 0;
	while (taken < bytes && cache->oldest && cache->oldest->sequence <= limit) {
		struct soft_piece *piece = cache->oldest;
		if (piece->block)
			soft_stream_end_block(cache->stream, piece->sequence, piece->block);
		piece->block = NULL;
		uint64_t part = bytes - taken < piece->bytes ? bytes - taken : piece->bytes;
		taken += part;
		if (part == piece->bytes) {
			soft_cache_remove(cache, piece);
		} else {
			bin_remove(cache, piece);
			piece->bytes -= part;
			cache->bytes -= part;
			bin_insert(cache, piece);
		}
	}
	return taken;
}
