#include "settings.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "device.h"
#include "lock.h"

struct soft_settings soft_settings;

static const struct soft_key keys[] = {
	{ "devices", &soft_settings.devices, 0, 1, 0, SOFT_MAX_DEVICES },
	{ "driver_version", &soft_settings.driver_version, 0, -1, 0, INT_MAX },
	{ "capacity", soft_settings.capacity, 1, 2LL << 30, 0, 1LL << 46 },
	{ "taken", soft_settings.taken, 1, 0, 0, 1LL << 46 },
	{ "pools", &soft_settings.pools, 0, 1, 0, 1 },
	{ "quarantine", &soft_settings.quarantine, 0, 1, 0, 1 },
	{ "delay_us", &soft_settings.delay_us, 0, 0, 0, 60 * 1000 * 1000 },
	{ "jitter_us", &soft_settings.jitter_us, 0, 0, 0, 60 * 1000 * 1000 },
	{ "pageable", &soft_settings.pageable, 0, 0, 0, 1 },
	{ "copy_mib_s", &soft_settings.copy_mib_s, 0, 0, 0, 1LL << 30 },
	{ "ignore_threshold", &soft_settings.ignore_threshold, 0, 0, 0, 1 },
	{ "implicit_sync", &soft_settings.implicit_sync, 0, 0, 0, 1 },
	{ "late_free", &soft_settings.late_free, 0, 0, 0, 1 },
	{ "overcommit", &soft_settings.overcommit, 0, 0, 0, 1 },
	{ "masks", &soft_settings.masks, 0, 0, 0, 1 },
};
enum { KEYS = sizeof keys / sizeof *keys };

/* All rows, the engine's and the ABI's; NULL after the last. */
static const struct soft_key *row(unsigned k)
{
	return k < KEYS ? &keys[k] : k - KEYS < soft_abi.key_count ? &soft_abi.keys[k - KEYS] : NULL;
}

enum { ALL_DEVICES = -1 };

/* Whether text is name, or name.N; N goes to device. */
static int matches(const char *text, const char *name, int per_device, int *device)
{
	size_t length = strlen(name);
	*device = ALL_DEVICES;
	if (strncmp(text, name, length))
		return 0;
	if (!text[length])
		return 1;
	if (!per_device || text[length] != '.' || !isdigit((unsigned char)text[length + 1]))
		return 0;
	char *end;
	unsigned long number = strtoul(text + length + 1, &end, 10);
	if (*end || number >= SOFT_MAX_DEVICES)
		return 0;
	*device = (int)number;
	return 1;
}

static long long initial_of(const struct soft_key *key)
{
	for (unsigned i = 0; i < soft_abi.default_count; i++)
		if (!strcmp(soft_abi.defaults[i].name, key->name))
			return soft_abi.defaults[i].initial;
	return key->value == &soft_settings.driver_version ? soft_abi.driver_version : key->initial;
}

/* A running device keeps what it holds: its capacity cannot fall below that, unless devices may hold more than they have. */
static int store(const struct soft_key *key, int device, long long value)
{
	if (value < key->least || value > key->most)
		return SOFT_SET_REFUSED;
	int first = device < 0 ? 0 : device, last = device < 0 ? (key->per_device ? SOFT_MAX_DEVICES - 1 : 0) : device;
	int result = 0;
	soft_lock();
	if (key->value == soft_settings.capacity && !soft_setting(&soft_settings.overcommit))
		for (int i = first; i <= last; i++)
			if ((uint64_t)value < soft_device_figure(i, SOFT_FIGURE_RESERVED))
				result = SOFT_SET_REFUSED;
	if (!result)
		for (int i = first; i <= last; i++)
			atomic_store(&key->value[i], value);
	soft_unlock();
	return result;
}

static void load_variable(const struct soft_key *key, int device, int complain)
{
	char variable[64];
	int length = device < 0 ? snprintf(variable, sizeof variable, "TMSOFT_%s", key->name)
	                        : snprintf(variable, sizeof variable, "TMSOFT_%s_%d", key->name, device);
	for (int i = 0; i < length; i++)
		variable[i] = (char)toupper((unsigned char)variable[i]);
	const char *text = getenv(variable);
	if (!text)
		return;
	char *end;
	errno = 0;
	long long value = strtoll(text, &end, 0);
	int number = !errno && end != text && !*end;
	if (number && !store(key, device, value))
		return;
	if (complain && !number)
		fprintf(stderr, "%s: %s=%s is not a whole number; the value before it stays\n", soft_abi.name, variable, text);
	else if (complain)
		fprintf(stderr, "%s: %s=%s is not allowed here (%lld to %lld, and a capacity not below what is held); the value before it stays\n",
		        soft_abi.name, variable, text, key->least, key->most);
}

void soft_settings_load(int complain)
{
	const struct soft_key *key;
	for (unsigned k = 0; (key = row(k)); k++) {
		/* A capacity is refused where the device holds more; then the one it has is as good as any. */
		(void)store(key, ALL_DEVICES, initial_of(key));
		load_variable(key, ALL_DEVICES, complain);
		for (int i = 0; key->per_device && i < SOFT_MAX_DEVICES; i++)
			load_variable(key, i, complain);
	}
}

int soft_settings_set(const char *text, long long value)
{
	const struct soft_key *key;
	int device;
	for (unsigned k = 0; (key = row(k)); k++)
		if (matches(text, key->name, key->per_device, &device))
			return store(key, device, value);
	return SOFT_SET_UNKNOWN;
}

long long soft_settings_get(const char *text)
{
	static const struct {
		const char *name;
		enum soft_figure figure;
	} figures[] = {
		{ "in_use", SOFT_FIGURE_IN_USE },
		{ "used", SOFT_FIGURE_USED },
		{ "reserved", SOFT_FIGURE_RESERVED },
		{ "live", SOFT_FIGURE_LIVE },
		{ "deferred", SOFT_FIGURE_DEFERRED },
	};
	const struct soft_key *key;
	int device;
	for (unsigned k = 0; (key = row(k)); k++)
		if (matches(text, key->name, key->per_device, &device))
			return soft_setting(&key->value[device < 0 ? 0 : device]);
	for (unsigned i = 0; i < sizeof figures / sizeof *figures; i++) {
		if (!matches(text, figures[i].name, 1, &device))
			continue;
		long long sum = 0;
		soft_lock();
		for (int d = device < 0 ? 0 : device; d <= (device < 0 ? SOFT_MAX_DEVICES - 1 : device); d++)
			sum += (long long)soft_device_figure(d, figures[i].figure);
		soft_unlock();
		return sum;
	}
	if (!strcmp(text, "sticky"))
		return soft_sticky_code();
	return LLONG_MIN;
}
