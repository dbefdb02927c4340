/* What tests steer the driver with. These names are exported beside the vendor's. */
#ifndef SOFT_CONTROL_H
#define SOFT_CONTROL_H

int tmsoft_set(const char *key, long long value);
long long tmsoft_get(const char *key);
int tmsoft_fail(const char *function, unsigned long nth, int code);
unsigned long tmsoft_calls(const char *function);
void tmsoft_reset(void);

#endif
