/* The software Level Zero driver as a client sees it. */
#ifndef SOFT_TESTS_LEVELZERO_CLIENT_H
#define SOFT_TESTS_LEVELZERO_CLIENT_H

#include "../harness.h"
/* The types and numbers, but not the prototypes: we reach every function through dlsym. */
#include "../../levelzero/types.h"

#define F(symbol, since, parameters) ze_result_t (*symbol) parameters;
struct api {
#include "../../levelzero/functions.def"
};
#undef F
extern struct api ze;

/* What most tests work with: the first driver, a context, the first device. */
extern ze_driver_handle_t driver;
extern ze_context_handle_t context;
extern ze_device_handle_t device;

void load(void);  /* dlopen, dlsym, nothing else */
void start(void); /* load, zeInit, the handles above */

#define VERSION(major, minor) ((major) << 16 | (minor))
#define FOREVER UINT64_MAX
/* The beginning of a structure of the core's or Sysman's: ze_fence_desc_t desc = { OF(FENCE_DESC), .flags = 0 }. What is not named is 0. */
#define OF(type) .stype = (ze_structure_type_t)V_ZE_STRUCTURE_TYPE_##type
#define ZES_OF(type) .stype = (zes_structure_type_t)V_ZES_STRUCTURE_TYPE_##type

void *allocate(size_t bytes);                             /* on the device */
void *allocate_host(size_t bytes);                        /* zeroed */
void free_by(int policy, void *pointer);                  /* zeMemFreeExt */
ze_command_list_handle_t immediate_list(unsigned flags);  /* asynchronous */
ze_command_list_handle_t new_list(unsigned flags);
ze_command_queue_handle_t new_queue(int mode);
ze_event_handle_t new_event(void);                        /* host visible, in a pool of its own */
void synchronize(ze_command_list_handle_t list);
void copy(ze_command_list_handle_t list, void *to, const void *from, size_t bytes);
void fill(ze_command_list_handle_t list, void *to, unsigned char value, size_t bytes);

/* A handle of that type which nobody ever made. */
#define NO_SUCH(type) ((type)(uintptr_t)0x1230)

/* A list stands still at an event until it is let go. */
ze_event_handle_t close_gate(ze_command_list_handle_t list);

#endif
