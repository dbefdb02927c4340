/* reaper.pml - who gives back what was freed and waits in a driver until the device has passed it (bindings/fast/reap.go, gomem.Device.Reap), where no call comes any
 * more that would look. There is one reaper at most, by a flag; it ends when nothing waits.
 *
 *   U   NU of them: frees a block under the moving lock, then looks, and sees to it that there is a reaper while something waits
 *   M   has the moving lock for a while, and looks after nothing
 *   device   passes the blocks, when it likes
 *
 * The lock that lets one thread at a time give back in the background (givingBack) is left out: without it more can happen.
 *
 * Mutations:
 *   NOAGAIN   the reaper does not look again after it took its flag down
 *   FLAGLATE  it looks again, and takes its flag down then
 *   TRYONCE   who finds the moving lock taken says that nothing waits
 *   NOFLAG    there is a reaper for each who asks: any number of them (harmless to what waits; expected: too many reapers)
 */
#ifndef NU
#define NU 2
#endif
byte waiting;           /* blocks that wait in the driver */
byte passed;            /* those of them that the device is done with */
bit moving;             /* the moving lock */
bit reaping;            /* the flag: a reaper is there */
byte called;            /* goroutines that are started and have not begun */
byte reapers, done; bit busy;   /* ghosts: reapers between start and flag down; threads that have ended; the reaper is at work */

/* Gives back what can be; w: something may still wait. It never waits for the moving lock. */
inline look(w) {                     /* model: reap.look */
  if
  :: waiting == 0 -> w = 0
  :: waiting != 0 ->
     if
     :: atomic { !moving -> moving = 1 };
        atomic { waiting = waiting - passed; passed = 0; w = (waiting != 0) };
        moving = 0
     :: moving ->
#ifdef TRYONCE
        w = 0
#else
        w = 1                        /* whoever has it may be the last who calls */
#endif
     fi
  fi
}
inline lookAndLeave(w) {
  look(w);
  if
  :: w ->
#ifdef NOFLAG
     atomic { reaping = 1; called++; reapers++; assert(reapers <= 1) };
#else
     atomic { w = !reaping; reaping = 1; if :: w -> called++; reapers++; assert(reapers <= 1) :: else fi };   /* model: reap.begin (a compare-and-swap) */
#endif
     w = 0
  :: else
  fi
}

/* One process stands for all reapers, one after the other: each is a goroutine of its own. */
active proctype reaper() {
  bit w;
end:
  do
  :: atomic { called > 0 -> called--; busy = 1 };
     do :: look(w); if :: w :: else -> break fi od;
#ifdef FLAGLATE
     look(w);
     atomic { reaping = 0; reapers-- };
#else
     atomic { reaping = 0; reapers-- };   /* model: reap.end */
#ifndef NOAGAIN
     lookAndLeave(w);                     /* model: reap.again - what came since the last look found a reaper here, and started none */
#endif
#endif
     w = 0; busy = 0
  od }

proctype U() { bit w;
  atomic { !moving -> moving = 1 }; waiting++; moving = 0;
  lookAndLeave(w);
  done++ }

proctype M() { atomic { !moving -> moving = 1 }; moving = 0; done++ }

active proctype device() { end: do :: atomic { passed < waiting -> passed++ } od }

init {
  byte i;
  atomic { do :: i < NU -> run U(); i++ :: else -> break od; run M() };
  (done == NU + 1 && !called && !busy);                  /* a reaper that is there stays for as long as the device takes */
  assert(waiting == 0) }
