/* Sysman: the same devices under other handles. */
#ifndef SOFT_LEVELZERO_SYSMAN_H
#define SOFT_LEVELZERO_SYSMAN_H

enum { ZES_MOST_MODULES = 4 };

void zes_open_locked(void); /* makes the handles; with the lock */
/* The old way: ZES_ENABLE_SYSMAN=1 at zeInit, and the core's handles are Sysman's. */
void zes_start_with_core(void);
int zes_started_with_core(void);

#endif
