/* last_step.pml - a call that has no way back (disown: the address that it returns is the only way to the memory), while the thread that waits for it looks for
 * signals, whose handlers may raise: then the caller gets the exception, and no address.
 *
 *   main     Python's main thread (bindings/fast/task.c). It waits in slices and looks for signals between them
 *   task     the goroutine that carries the call out (gomem.Device.DisownIf), again where it is told to ask again
 *
 * What the call does before its last step can be taken back, and is in protocol.pml (-DDISOWN).
 *
 * Mutations:
 *   NOGATE    handlers run whenever the call is not done, and the last step asks nobody
 *   LOOKGATE  the last step looks at the gate and then passes it, in two steps instead of a compare-and-swap
 *   REOPEN    the gate is opened again after a handler has raised: the call is cancelled anyway
 *   NOAGAIN   a call that came to its gate while it was closed fails, instead of being made again
 * -DCOVN=n as in protocol.pml.
 */
#ifndef COVN
#define COVN 0
#endif
#define COV(n) assert(COVN != n)
#ifndef NSIG
#define NSIG 2          /* signals that may come */
#endif
#define OPEN 0
#define CLOSED 1
#define PASSED 2
#define OK 1
#define AGAIN 2
#define CANCELLED 3

byte gate = OPEN, code, signals = NSIG;
bit started, done, cancel;
bit handed;             /* ghost: the memory is the caller's, and the core has forgotten it */

active proctype task() {
  bit now;
end:
  do
  :: atomic { started -> started = 0 };
     if
     :: cancel -> code = CANCELLED         /* while it waits or copies */
     :: 1 ->
        if
        :: cancel -> code = CANCELLED      /* looked at once more before the last step */
        :: else ->
#if defined(NOGATE)
           now = 1;
#elif defined(LOOKGATE)
           now = (gate == OPEN);
           if :: now -> gate = PASSED :: else fi;
#else
           atomic { now = (gate == OPEN); if :: now -> gate = PASSED :: else fi };   /* model: gate.pass */
#endif
           if
           :: now -> handed = 1; code = OK
           :: else -> COV(1); code = (cancel -> CANCELLED : AGAIN)
           fi
        fi
     fi;
     now = 0; done = 1
  od }

active proctype main() {
  bit closed, raised;
again:
  atomic { gate = OPEN; code = 0; done = 0; cancel = 0; started = 1 };
  do
  :: done -> break
  :: !done ->                              /* the slice has ended; the task may come to its end at any time from here on */
     if
     :: raised                             /* no further handler runs */
     :: else ->
#ifdef NOGATE
        closed = 1;
#else
        atomic { closed = (gate == OPEN); if :: closed -> gate = CLOSED :: else -> COV(2) fi };   /* model: gate.close */
#endif
        if
        :: closed ->
           if
           :: atomic { signals > 0 -> signals--; raised = 1 }     /* a handler raises: the gate stays closed */
              cancel = 1
#ifdef REOPEN
              ; gate = OPEN
#endif
           :: atomic { signals > 0 -> signals-- };                /* one that returns */
              gate = OPEN
           :: 1 -> gate = OPEN             /* model: gate.open - no signal has come */
           fi
        :: else                            /* it has passed, and ends at once */
        fi
     fi
  od;
  if
  :: raised -> assert(!handed)             /* the caller has an exception, and must still have its memory */
  :: !raised && code == AGAIN ->
#ifdef NOAGAIN
     assert(code != AGAIN)                 /* an error for no reason */
#else
     COV(3); closed = 0; goto again
#endif
  :: else -> COV(4); assert(code == OK && handed)
  fi }
