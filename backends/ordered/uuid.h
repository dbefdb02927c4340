/* A device's UUID as text, for the vendors' adapters. */
#ifndef TMO_UUID_H
#define TMO_UUID_H
#include <stdio.h>
#include <string.h>

/* Writes sixteen bytes behind a prefix as RFC 9562 does. */
static inline void tmo_write_uuid(char *text, size_t room, const char *prefix, const void *uuid) {
	unsigned char b[16];
	memcpy(b, uuid, sizeof b);
	snprintf(text, room, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", prefix, b[0], b[1], b[2], b[3], b[4], b[5],
	         b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}
#endif
