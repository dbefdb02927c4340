/* protocol.pml - the whole protocol of launches, spills, restores, drops, host accesses and holds, on three records and a device with room for two.
 *
 * Comments such as "model: spill.mark" name a step; the comments of the code use the same names. One Promela statement (or atomic block) is one access
 * that another thread can see, or a run of accesses of which only one can be seen.
 *
 * Threads, counted in or out by definitions (see `run`):
 *   L0   launches on records 0 and 1 (NL0 times)
 *   L1   launches on records 1 and 2 (NL1 times; only on 1 once the program has let go of 2)
 *   S    NSP times: chooses a victim, lets go of the lock, allocates a new buffer, then spills what it chose
 *   D    drops buffer 2 (tp_dealloc)          WITH_D
 *   H    writes to buffer HR from the host     WITH_H
 *   P    opens and closes a peak scope, reads the books    WITH_P
 *   X    holds buffer 1, released by a thread without the GIL    WITH_X
 *   R    restores what is spilled without being a launch (restore_all)    WITH_R
 *   E    frees buffer 2 early, while the program still has it (Buffer.free)    WITH_E, not with D; or hands its memory out to whoever had it before
 *        (disown)    WITH_E DISOWN. The worst that the new owner can do is to free it at once, and so it does here
 *
 * Memory: launch counts are plain loads and stores under the GIL that pass through a store buffer (drained at any time); the spiller's membarrier
 * drains all of them. -DATOM: atomic counts (no membarrier in the kernel). -DNOGIL: a free-threaded interpreter (atomic counts as well).
 * -DNESTED: X is inside another launch or hold of its thread.
 * -DFAULTS: the copies of a spill and of a restore may fail.
 *
 * Mutations (each takes one rule away; `run` knows what must then be caught):
 *   NOMEMB         no barrier between marking a victim and reading its counts
 *   CHECKFIRST     the counts are read before the victim is marked, not after
 *   LAUNCHESFIRST  the spiller reads launches before admitted
 *   PINFIRST       the spiller reads pins before admitted (a hold that came through the slow path converts admitted into a pin)
 *   CONVERTFIRST   after the slow path, admitted is lowered before launches is raised
 *   CONVERTRELAXED admitted-- may be seen before launches++ (no release order)
 *   NOGEN          a remembered candidate is used without comparing its generation
 *   NORECHECK      the unlock does not look at the drop list once more
 *   FLAGLATE       the drainer takes its flag down after it looked at the list
 *   GILWAIT        tp_dealloc waits for the moving lock and keeps the GIL
 *   DROPFREE       tp_dealloc frees at once, without the moving lock
 *   DROPNOLOCK     the drop sets Dropped and lowers the books without the books lock
 *   HOLDWAIT       a launch that cannot be satisfied keeps what it holds while it waits (harmless beside the turnstile, which lets one wait at a time; expected:
 *                  no error. turnstile.pml has it without)
 *   FREEFIRST      a spill frees the device copy before the host copy is complete
 *   NODROPCHK      the commit of a spill ignores that the buffer was dropped meanwhile
 *   NODROPCHKIN    the commit of a restore stores the whole word, instead of a compare-and-swap that fails when dropped
 *   NOBUSY         an early free does not look whether another thread is on its way into the slow path with the buffer's index
 *   TWOHOLDS       DISOWN lets go of the moving lock between the restore and the step that takes the buffer
 *   HANDBUSY       DISOWN does not look whether the memory is in use
 *   HANDSTALE      DISOWN does not bring the buffer back first
 *   HOSTNOPIN      a host write looks at the state and writes without a pin
 *   PLAINNOGIL     plain counts without the GIL
 *   LATEADD        a commit changes the state before it raises the new book (harmless under the books lock; expected: no error)
 * -DCOVN=n: coverage; the interesting place numbered n must be reachable, so that a clean run means something.
 */
#include "world.pml"
#include "steps.pml"

#define LOCALS bit a0, a1; byte c_, m_, x_, i_, my, b1_, own_; bit ok, w, kept, h_, g_, y_, z_, old_

#ifndef ATOM
proctype drainer(byte t) { end: do :: d_step { bn[t] > 0 -> apply0(t) } od }   /* the processor empties a store buffer whenever it likes */
#endif

/* The drainer: a goroutine, without the GIL. It never waits for the moving lock: whoever has it looks at the list after letting go of it. */
active proctype drain() {
end:  do
  :: atomic { draining -> dr_ = 1 };
#ifndef FLAGLATE
     draining = 0;                   /* first: what is dropped from now on calls it again */
#endif
     do
     :: dlist == 0 -> break
     :: dlist != 0 -> if :: atomic { dl == 0 -> dl = 8 }; DRAIN(7); dl = 0 :: dl != 0 -> break fi
     od;
#ifdef FLAGLATE
     draining = 0;
#endif
     dr_ = 0
  od }

#if NL0 > 0
proctype L0() { byte n; LOCALS;
  do :: atomic { n < NL0 -> n++ }; launch(0, 0, 1, 1) :: atomic { n == NL0 -> break } od; done++ }
#endif

#if NL1 > 0
proctype L1() { byte n; LOCALS; bit two;
  do
  :: atomic { n < NL1 && GILFREE(1) -> n++; two = !p2gone; if :: two -> ref[2]++ :: else fi };   /* a local variable of the program */
     launch(1, 1, 2, two);
     if :: two -> GIL_LOCK(1); decref(1, 2); GIL_UNLOCK(1) :: else fi; two = 0
  :: atomic { n == NL1 -> break }
  od; done++ }
#endif

#if NSP > 0
proctype S() { byte n, r, sg, sb; bit mine; LOCALS;
  do
  :: atomic { n < NSP -> n++ };
     /* a batch (here: of one) is chosen under the lock and used later */
     atomic { dl == 0 -> if :: st[0] == RES -> r = 0 :: st[1] == RES -> r = 1 :: st[2] == RES -> r = 2 :: else -> r = 0 fi; sg = gen[r]; sb = bid[r] };
     if
     :: atomic { !mine && st[2] == FREE -> st[2] = BLD; bid[2] = nbid + 1; nbid++ };   /* model: new.build - invisible to spilling */
        atomic { if :: devmem < CAP -> devmem++; dev[2] = 1; addr[2] = 1 - addr[2]; ok = 1 :: else -> ok = 0 fi };   /* it fits: no moving lock */
        if
        :: ok
        :: else ->                                      /* it does not: it queues and waits as launches do */
           atomic { my = nextt; nextt = (nextt + 1) % 4 };
           (serving == my);
           do
           :: DEVLOCK(2); room(2, ok, 1);
              atomic { if :: ok && devmem < CAP -> devmem++; dev[2] = 1; addr[2] = 1 - addr[2] :: else -> ok = 0 fi };
              if :: ok -> unmark(); DEVUNLOCK(2); break
                 :: else -> DEVUNLOCK(2); (LETGO(0) && LETGO(1) && LETGO(2)) fi
           od;
           atomic { serving = (serving + 1) % 4; my = 0 }
        fi;
        atomic { val[2] = 50; dval[2] = 50; ok = 0 };   /* contents, still invisible */
        BOOKS; in_use++; st[2] = RES; atomic { raise(); bl = 0; mine = 1 }  /* model: new.commit - state, books and peak in one step */
     :: else
     fi;
     DEVLOCK(2);
     atomic { w = (st[r] == RES);
#ifndef NOGEN
       w = w && gen[r] == sg;                                   /* model: batch.generation */
#endif
       if :: w -> assert(bid[r] == sb) :: else fi; sg = 0; sb = 0 };    /* what is spilled is what was chosen */
     if :: w -> spill(2, r, ok, 0) :: else fi;
     w = 0; r = 0;
     DEVUNLOCK(2)
  :: atomic { n == NSP -> break }
  od;
  if :: mine -> GIL_LOCK(2); dealloc(2, 2); GIL_UNLOCK(2) :: else fi;
  done++ }
#endif

#ifdef WITH_D
proctype D() { LOCALS;
  atomic { GILFREE(3) -> GIL_TAKE(3); p2gone = 1 }; decref(3, 2); GIL_UNLOCK(3);
  done++ }
#endif

#ifdef WITH_H
proctype H() { LOCALS;
  atomic { GILFREE(4) -> ref[HR]++ };
#ifdef HOSTNOPIN
  ok = (st[HR] == RES && !dropped[HR]);
  if
  :: ok -> atomic { val[HR]++; if :: dev[HR] -> dval[HR] = val[HR] :: else fi }
#else
  pins[HR]++;                                           /* model: host.pin - sequentially consistent */
  ok = (st[HR] == RES && !dropped[HR]);                 /* model: host.check */
  if
  :: ok -> atomic { assert(dev[HR]); val[HR]++; dval[HR] = val[HR] }; atomic { pins[HR]--; }
#endif
  :: else ->
#ifndef HOSTNOPIN
     atomic { pins[HR]--; };
#endif
     DEVLOCK(4);                                        /* model: host.slow - whichever copy is the true one, under the moving lock */
     atomic {
     if
     :: st[HR] == RES || st[HR] == SPG -> assert(dev[HR]); val[HR]++; dval[HR] = val[HR]
     :: st[HR] == SPD -> COV(7); assert(hostc[HR]); val[HR]++; hval[HR] = val[HR]
     :: else -> assert(0)
     fi };
     DEVUNLOCK(4)
  fi;
  GIL_LOCK(4); decref(4, HR); GIL_UNLOCK(4);
  done++ }
#endif

#ifdef WITH_P
proctype P() {                         /* a peak scope and memory_info; the second with the GIL, which a leaf lock allows */
  atomic { bl == 0 -> sopen = 1; speak = in_use; assert(BOOKSOK) };
  GIL_LOCK(6); atomic { bl == 0 -> assert(BOOKSOK) }; GIL_UNLOCK(6);
  atomic { bl == 0 -> assert(speak >= in_use && speak <= peak && in_use <= peak); sopen = 0; speak = 0 };
  done++ }
#endif

#ifdef WITH_X
proctype X() { LOCALS;
  atomic { GILFREE(5) -> ref[1]++ };
  pins[1]++;                                            /* model: hold.pin */
  atomic { ok = (st[1] == RES && !dropped[1]); a0 = addr[1] };
  if
  :: ok
  :: else ->
     atomic { pins[1]--; a0 = 0 };                      /* back off, or a launch that waits for the pin would wait for us */
     admit(5, 1, 1, 0);
     if
     :: w -> pins[1]++;                                 /* as a launch: the pin is seen before admitted-- */
        adm[1]--; a0 = addr[1]; ok = 1
     :: else -> COV(17)                                 /* nested, and there is no room: an error */
     fi
  fi;
  if :: ok -> USE(1, a0); pins[1]-- :: else fi;
  atomic { ok = 0; a0 = 0; w = 0 };
  GIL_LOCK(5); decref(5, 1); GIL_UNLOCK(5);
  done++ }
#endif

#ifdef WITH_R
proctype R() { LOCALS;                 /* it pins what is there, but nothing keeps the buffers alive: a drop may come at any step */
  DEVLOCK(6);
  atomic { pins[0]++; pins[1]++; pins[2]++ };
  i_ = 2;
  do
  :: if :: st[i_] == SPD && !dropped[i_] -> restore(6, i_, w, 0) :: else fi;
     if :: i_ > 0 -> i_-- :: else -> break fi
  od;
  atomic { pins[0]--; pins[1]--; pins[2]--; w = 0 };
  DEVUNLOCK(6);
  done++ }
#endif

#ifdef WITH_E
proctype E() { LOCALS;                 /* marks as a spill does, then drops under the moving lock */
  atomic { GILFREE(3) -> GIL_TAKE(3);
#ifdef NOBUSY
    ok = 1;
#else
    ok = (busy == 0);
#endif
    nowhere = ok };
  GIL_UNLOCK(3);
  if
  :: ok ->
#ifdef DISOWN
     atomic { my = nextt; nextt = (nextt + 1) % 4; own_ = 1 << 2 };     /* as a launch on its slow path */
     (serving == my);
     do
     :: DEVLOCK(3);
#ifdef HANDSTALE
        w = 1;
#else
        adm[2]++; restore(3, 2, w, 1); adm[2]--;
#endif
        if :: w -> w = 0; break :: else -> DEVUNLOCK(3); (LETGO(0) && LETGO(1) && LETGO(2)) fi
     od;
#ifdef TWOHOLDS
     DEVUNLOCK(3); DEVLOCK(3);
#endif
#else
     DEVLOCK(3);
#endif
     atomic { old_ = (st[2] == RES); if :: old_ -> st[2] = SPG :: else fi };
#ifdef DISOWN
     assert(st[2] == SPG);                              /* nobody moved it: since it came back the moving lock was not let go of */
#endif
#if !defined(NOMEMB) && !defined(ATOM)
     flush(0); flush(1);
#endif
     readcounts(2);
#ifdef HANDBUSY
     h_ = 0;
#endif
     if
     :: h_ -> COV(15); atomic { if :: old_ -> st[2] = RES :: else fi; h_ = 0; ok = 0 }     /* BufferError: nothing changed */
     :: else ->
#ifdef DISOWN
        if :: 1 :: 1 -> ok = 0 fi;                      /* the last step may be refused (ErrNotNow): last_step.pml */
        if
        :: !ok -> st[2] = RES                           /* nothing changed */
        :: else -> atomic { COV(18); assert(dev[2] && dval[2] == val[2]) };     /* model: disown.take - the address is the caller's, with what was written last */
           dropmark(2); atomic { bl == 0 -> freerec(2) }
        fi
#else
        dropmark(2); atomic { bl == 0 -> freerec(2) }
#endif
     fi;
#ifdef DISOWN
     unmark(); DEVUNLOCK(3);
     atomic { serving = (serving + 1) % 4; my = 0; own_ = 0 };
#else
     DEVUNLOCK(3);
#endif
     atomic { GILFREE(3) -> GIL_TAKE(3); nowhere = ok; gone = ok; old_ = 0; ok = 0 };
     GIL_UNLOCK(3)
  :: else -> COV(16)
  fi;
  done++ }
#endif

bit go_;
bit data_lost, memory_wrong, books_wrong;      /* names for pan's messages */
active proctype mon() { end: do
  :: atomic { go_ && !DATAOK -> data_lost = 1; assert(!data_lost) }
  :: atomic { go_ && !MEMORYOK -> memory_wrong = 1; assert(!memory_wrong) }
  :: atomic { go_ && !COUNTSOK -> books_wrong = 1; assert(!books_wrong) }
  od }

init {
  atomic {
    go_ = 1; st[0] = RES; st[1] = RES; st[2] = SPD; dev[0] = 1; dev[1] = 1; hostc[2] = 1; devmem = 2;
    val[0] = 10; dval[0] = 10; hval[0] = JUNK; val[1] = 20; dval[1] = 20; hval[1] = JUNK; val[2] = 30; hval[2] = 30; dval[2] = JUNK;
    ref[0] = 1; ref[1] = 1; ref[2] = 1; bid[0] = 1; bid[1] = 2; bid[2] = 3; in_use = 2; spilled = 1; peak = 2;
#if NL0 > 0
    run L0(); want++;
#endif
#if NL1 > 0
    run L1(); want++;
#endif
#if NSP > 0
    run S(); want++;
#endif
#ifdef WITH_D
    run D(); want++;
#endif
#ifdef WITH_H
    run H(); want++;
#endif
#ifdef WITH_P
    run P(); want++;
#endif
#ifdef WITH_X
    run X(); want++;
#endif
#ifdef WITH_R
    run R(); want++;
#endif
#ifdef WITH_E
    run E(); want++;
#endif
#if !defined(ATOM) && NL0 > 0
    run drainer(0);
#endif
#if !defined(ATOM) && NL1 > 0
    run drainer(1);
#endif
    skip
  };
  (done == want && EMPTY(0) && EMPTY(1) && !draining && !dr_);                /* not reached: a deadlock, an invalid end state */
  assert(dlist == 0 && pending == 0);                    /* nothing dropped is left behind */
  assert(mem[0] == 0 && mem[1] == 0 && mem[2] == 0 && adm[0] + adm[1] + adm[2] + pins[0] + pins[1] + pins[2] == 0);
  assert(st[0] == RES || st[0] == SPD); assert(st[1] == RES || st[1] == SPD);      /* no mark is left behind */
#ifdef WITH_D
  assert(st[2] == FREE);
#endif
}
