#include "visible.h"

#include <string.h>

static int sees(const struct soft_visible *visible, int number)
{
	for (int i = 0; i < visible->count; i++)
		if (visible->numbers[i] == number)
			return 1;
	return 0;
}

void soft_visible_list(struct soft_visible *visible, const char *text, int devices, soft_entry entry, enum soft_again again)
{
	visible->count = 0;
	while (*text) {
		size_t length = strcspn(text, ",");
		int number = entry(text, (unsigned)length, devices);
		int twice = number >= 0 && sees(visible, number);
		if (number < 0 || (twice && again == SOFT_AGAIN_ENDS))
			return;
		if (!twice)
			visible->numbers[visible->count++] = number;
		text += length + (text[length] == ',');
	}
}

int soft_entry_ordinal(const char *text, unsigned length, int devices)
{
	int number = 0;
	if (!length || length > 4)
		return -1;
	for (unsigned i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		number = 10 * number + text[i] - '0';
	}
	return number < devices ? number : -1;
}
