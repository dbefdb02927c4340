/* other_stream.pml - a launch whose work is queued on a stream of the host's own. protocol.pml lets the work of a launch be over when the launch ends: on the device's
 * own stream it may as well be, since what moves or frees the memory is queued there behind it. Here the work runs later, and only the launch's count keeps the memory
 * in its place until the device's stream comes after it, or until it is over (gomem.Device.Follow, bindings/fast/launch_end.c).
 *
 *   L   NL launches of one buffer, one after the other, each with its kernel; at its end it is joined, waited for, or late: the count stays raised, and T lowers it
 *   T   later calls, which look whether a late launch is over
 *   S   spills, by copies on the device's stream, and restores
 *   X   the host's stream, which runs kernels in order, when it likes
 *
 * Mutations:
 *   LEAVEFIRST   the count is lowered before the streams are joined
 *   LATELEAVES   a launch that is late lowers its count all the same
 *   LATEBLIND    later calls lower the count of a late launch without looking whether it is over
 */
#ifndef NL
#define NL 2
#endif
#define RES 0
#define SPG 1
#define SPD 2

byte st; bit dev = 1;
byte launches;
byte queued, ran, follows;   /* kernels that X was given, has run, and that the device's stream comes after */
byte late;                   /* launches that are late */
byte val, dval, hval;        /* ghost: how many kernels have written; the contents of the copies */
bit ended;

active proctype X() { end: do :: atomic { ran < queued -> assert(dev); ran++; val++; dval++ } od }

active proctype L() {
  byte n;
  do
  :: n < NL -> n++;
     launches++;                              /* as launch.enter */
     if
     :: st != RES -> launches--; n--; (st == RES)
     :: else ->
        queued++;
        if
        :: 1 ->                               /* the streams are joined */
#ifdef LEAVEFIRST
           launches--; follows = queued
#else
           follows = queued; launches--
#endif
        :: 1 -> (ran == queued); launches--   /* the host waits */
        :: 1 ->                               /* it cannot, or Ctrl-C has ended the wait */
#ifdef LATELEAVES
           launches--
#else
           late++
#endif
        fi
     fi
  :: else -> break
  od;
  ended = 1 }

active proctype T() {
end:
  do
#ifdef LATEBLIND
  :: atomic { late > 0 -> late-- }; launches--
#else
  :: atomic { late > 0 && ran == queued -> late-- }; launches--
#endif
  od }

active proctype S() {
end:
  do
  :: st == RES ->
     st = SPG;                                /* as spill.mark, with its barrier */
     if
     :: launches > 0 -> st = RES
     :: else ->
        (ran >= follows);                     /* the device's stream */
        hval = dval; st = SPD; dev = 0; dval = 0
     fi
  :: st == SPD -> dev = 1; dval = hval; st = RES
  od }

/* Whenever nothing is left to run, the true copy has what every kernel wrote. */
bit data_lost;
active proctype mon() { end: atomic { ended && ran == queued && (st == SPD && hval != val || st != SPD && dval != val) -> data_lost = 1; assert(!data_lost) } }
