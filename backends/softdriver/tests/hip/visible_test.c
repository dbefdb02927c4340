/* HIP_VISIBLE_DEVICES: which devices a process sees, and in which order. */
#include <sys/wait.h>

#include "client.h"

enum { DEVICES = 3 };
#define UUID "GPU-50f7a3e00000000" /* all but the last digit of each of our devices' */

static void set(const char *variable, const char *value) { OK(value ? setenv(variable, value, 1) : unsetenv(variable)); }

/* The digits are the last of the UUIDs of the devices that a new process sees with that list. */
static void sees(const char *list, const char *cudas, const char *digits)
{
	int status, count = -1;
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		hipUUID uuid;
		set("HIP_VISIBLE_DEVICES", list);
		set("CUDA_VISIBLE_DEVICES", cudas);
		load_devices(DEVICES);
		EQUAL(soft.set("masks", 1), 0);
		RETURNS(*digits ? hipSuccess : V_hipErrorNoDevice, hip.hipGetDeviceCount(&count));
		EQUAL(count, strlen(digits));
		for (int i = 0; digits[i]; i++) {
			OK(hip.hipDeviceGetUuid(&uuid, i));
			EQUAL(uuid.bytes[15], digits[i]);
		}
		exit(0);
	}
	EQUAL(waitpid(child, &status, 0), child);
	if (status)
		failed(__FILE__, __LINE__, "with the lists %s and %s", list ? list : "(none)", cudas ? cudas : "(none)");
}

TEST(visible_devices_come_in_the_order_of_the_list)
{
	sees(NULL, NULL, "012");
	sees("2,1", NULL, "21");
	sees("0,3,1", NULL, "0");
	sees("1,1,0", NULL, "10");
	sees("-1", NULL, "");
	sees(UUID "2,0", NULL, "20");
	sees(UUID, NULL, ""); /* nothing is left out of AMD's UUIDs */
}

TEST(an_empty_list_is_none)
{
	sees("", NULL, "012");
	sees("", "1", "1");
	sees(NULL, "2,0", "20");
	sees("0", "2", "0");
	sees("", "", "012");
}
