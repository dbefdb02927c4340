/* ZE_AFFINITY_MASK: which devices a process sees. */
#include <sys/wait.h>

#include "client.h"

enum { DEVICES = 3 };

/* The letters are the last bytes of the UUIDs of the devices that a new process sees with that mask. */
static void sees(const char *mask, const char *letters)
{
	int status;
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		ze_driver_handle_t first;
		ze_device_handle_t devices[DEVICES];
		uint32_t count = 1;
		OK(mask ? setenv("ZE_AFFINITY_MASK", mask, 1) : unsetenv("ZE_AFFINITY_MASK"));
		load();
		EQUAL(soft.set("devices", DEVICES), 0);
		EQUAL(soft.set("masks", 1), 0);
		RETURNS(*letters ? 0 : V_ZE_RESULT_ERROR_UNINITIALIZED, ze.zeInit(0));
		if (!*letters)
			exit(0);
		OK(ze.zeDriverGet(&count, &first));
		count = DEVICES;
		OK(ze.zeDeviceGet(first, &count, devices));
		EQUAL(count, strlen(letters));
		for (uint32_t i = 0; i < count; i++) {
			ze_device_properties_t properties = { OF(DEVICE_PROPERTIES) };
			OK(ze.zeDeviceGetProperties(devices[i], &properties));
			EQUAL(properties.uuid.id[15], letters[i]);
		}
		exit(0);
	}
	EQUAL(waitpid(child, &status, 0), child);
	if (status)
		failed(__FILE__, __LINE__, "with the mask %s", mask ? mask : "(none)");
}

TEST(the_mask_is_a_set_of_devices)
{
	sees(NULL, "ABC");
	sees("", "ABC"); /* as if it were not set */
	sees("0, 2", "AC");
	sees("2,0", "AC"); /* the devices stay in their order */
	sees("1", "B");
	sees("5,1", "B");
	sees("7", "");
}

TEST(a_part_that_a_device_has_not_shows_nothing)
{
	sees("0.0", "");
	sees("0.1,2", "C");
}
