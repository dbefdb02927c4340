/* CUDA_VISIBLE_DEVICES: which devices a process sees, and in which order. */
#include <sys/wait.h>

#include "client.h"

enum { DEVICES = 3 };
#define UUID "GPU-736f6674-6375-6461-2d64-6576696365" /* all but the last byte of each of our devices' */

/* The letters are the last bytes of the UUIDs of the devices that a new process sees with that list. */
static void sees(int masks, const char *list, const char *letters)
{
	int status, count;
	pid_t child = fork();
	CHECK(child >= 0);
	if (!child) {
		CUuuid uuid;
		char bus[16];
		OK(list ? setenv("CUDA_VISIBLE_DEVICES", list, 1) : unsetenv("CUDA_VISIBLE_DEVICES"));
		load();
		EQUAL(soft.set("devices", DEVICES), 0);
		EQUAL(soft.set("masks", masks), 0);
		RETURNS(*letters ? CUDA_SUCCESS : V_CUDA_ERROR_NO_DEVICE, cu.cuInit(0));
		if (*letters) {
			OK(cu.cuDeviceGetCount(&count));
			EQUAL(count, strlen(letters));
		}
		for (int i = 0; letters[i]; i++) {
			OK(cu.cuDeviceGetUuid_v2(&uuid, i));
			EQUAL(uuid.bytes[15], letters[i]);
			OK(cu.cuDeviceGetPCIBusId(bus, sizeof bus, i));
			EQUAL(bus[6] - '1', letters[i] - 'A');
		}
		exit(0);
	}
	EQUAL(waitpid(child, &status, 0), child);
	if (status)
		failed(__FILE__, __LINE__, "with the list %s", list ? list : "(none)");
}

TEST(visible_devices_come_in_the_order_of_the_list)
{
	sees(1, NULL, "ABC");
	sees(1, "2,1", "CB");
	sees(1, "1", "B");
	sees(1, "", "");
	sees(0, "", "ABC"); /* simulated devices are nobody's GPUs, unless a test asks for it */
}

TEST(visible_devices_end_at_what_is_none)
{
	sees(1, "0,2,-1,1", "AC");
	sees(1, "1,3,0", "B");
	sees(1, "-1", "");
	sees(1, "NoDevFiles", "");
	sees(1, "1,1,0", "B");
}

TEST(visible_devices_are_named_by_uuid)
{
	sees(1, UUID "42", "B");
	sees(1, UUID "43," UUID "41", "CA");
	sees(1, "1," UUID "41", "BA");
	sees(1, UUID "4", "");   /* enough to be one of them, and not to be one only */
	sees(1, UUID "44", "");
	sees(1, UUID "4200", "");
	sees(1, "GPU-", "");
}
