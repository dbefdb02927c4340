/* Which of the machine's devices the process sees: a vendor's variable of the environment may hide some, and give the others another order. */
#ifndef SOFT_VISIBLE_H
#define SOFT_VISIBLE_H

#include "settings.h"

/* Numbers of the machine's devices, in the order in which the process sees them. */
struct soft_visible {
	int numbers[SOFT_MAX_DEVICES];
	int count;
};

/* One entry of a list: the number of the device that it names, -1 for none. `length` characters, not ended. */
typedef int (*soft_entry)(const char *text, unsigned length, int devices);

enum soft_again { SOFT_AGAIN_ENDS, SOFT_AGAIN_PASSES }; /* a device named twice ends the list, as one that does not exist does; or is passed over */

/* Devices separated by commas, in that order, up to the first entry that names none. */
void soft_visible_list(struct soft_visible *visible, const char *text, int devices, soft_entry entry, enum soft_again again);

int soft_entry_ordinal(const char *text, unsigned length, int devices); /* a decimal number */

#endif
