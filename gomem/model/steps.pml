/* steps.pml - the steps of the protocol: drops, spills, restores, the launch. Included by protocol.pml after world.pml. */
/* ---- drop: tp_dealloc, with the GIL, which it keeps. It waits for the books lock only. */
inline dealloc(me, r) {
  dropmark(r);
#ifdef DROPFREE
  atomic { bl == 0 -> freerec(r) }
#else
  dlist = dlist | (1 << r);          /* model: drop.push (a compare-and-swap) */
#ifdef GILWAIT
  atomic { dl == 0 -> assert(gil != me+1); dl = me+1 }; DRAIN(me); DEVUNLOCK(me)
#else
  draining = 1                       /* wakes the drainer, if it is not on its way already */
#endif
#endif
}
inline dropmark(r) {                 /* model: drop.mark - Dropped and the books in one step, under the books lock */
  assert(!dropped[r] && st[r] != FREE);
#ifdef DROPNOLOCK
  atomic { dropped[r] = 1; z_ = ONDEV(r); pending++ };
  atomic { if :: z_ -> in_use-- :: else -> spilled--; s_freed++ fi; z_ = 0 };
#else
  BOOKS;
  atomic { dropped[r] = 1; pending++; if :: ONDEV(r) -> in_use-- :: else -> spilled--; s_freed++ fi; bl = 0 };
#endif
}
inline decref(me, r) { atomic { ref[r]--; z_ = (ref[r] == 0 && !GONE(r)) }; if :: z_ -> z_ = 0; dealloc(me, r) :: else fi }

#define MARKED_BUT(v) ((st[0] == SPG && v != 0) || (st[1] == SPG && v != 1) || (st[2] == SPG && v != 2))
/* ---- spill: the moving lock is held. keep: a victim that is held stays marked, for a launch that waits; not own_, the launch's own buffers: it would wait
 * for itself. */
inline readcounts(v) {               /* model: spill.check - admitted first: launches or pins are raised before admitted is lowered */
#ifdef PINFIRST
  h_ = h_ || (pins[v] > 0); if :: !h_ -> h_ = (adm[v] > 0) :: else fi; if :: !h_ -> h_ = (mem[v] > 0) :: else fi
#else
#ifdef LAUNCHESFIRST
  h_ = h_ || (mem[v] > 0); if :: !h_ -> h_ = (adm[v] > 0) :: else fi;
#else
  h_ = h_ || (adm[v] > 0); if :: !h_ -> h_ = (mem[v] > 0) :: else fi;
#endif
  if :: !h_ -> h_ = (pins[v] > 0) :: else fi
#endif
}
inline spill(me, v, okv, keep) {
#ifdef CHECKFIRST
  readcounts(v);
#endif
  atomic { okv = 0; g_ = 0; old_ = (st[v] == SPG);      /* old_: a waiting launch marked it earlier, with its barrier */
    if :: !h_ && (st[v] == RES || st[v] == SPG) && !dropped[v] -> st[v] = SPG; g_ = 1 :: else fi };   /* model: spill.mark */
  if
  :: g_ ->
#if !defined(NOMEMB) && !defined(ATOM)
     flush(0); flush(1);             /* model: spill.barrier - each thread in turn, not one instant */
#endif
#ifndef CHECKFIRST
     readcounts(v);
#endif
     if
     :: h_ -> atomic { if :: mem[v] > 0 && !dropped[v] -> COV(1) :: else fi; if :: pins[v] > 0 -> COV(6) :: else fi; h_ = 0;
                if :: (keep && !MARKED_BUT(v) && !(own_ & (1 << v))) || old_ -> COV(8) :: else -> st[v] = RES fi }
     :: else ->
#ifdef FREEFIRST
        atomic { c_ = dval[v]; dev[v] = 0; devmem--; dval[v] = JUNK }; atomic { hostc[v] = 1; hval[v] = c_ };
#else
        atomic { hostc[v] = 1; hval[v] = dval[v] };     /* model: spill.copy */
#endif
#ifdef FAULTS
        if
        :: 1                                            /* the copy, or the host's memory, failed: the device copy is still the true one */
           atomic { hostc[v] = 0; hval[v] = JUNK; st[v] = RES }
        :: 1
#endif
        BOOKS;                                          /* model: spill.commit - state and books in one step, unless dropped meanwhile */
#ifndef LATEADD
        spilled++;
#endif
        atomic { if
#ifdef NODROPCHK
          :: 1 -> st[v] = SPD; okv = 1
#else
          :: !dropped[v] -> st[v] = SPD; okv = 1
          :: dropped[v] -> COV(2)                       /* stays moving; the drain frees both copies */
#endif
          fi };
#ifdef LATEADD
        if :: okv -> spilled++ :: else fi;
#else
        if :: !okv -> spilled-- :: else fi;
#endif
        atomic { if :: okv -> in_use--; s_out++ :: else fi; bl = 0 };
#ifndef FREEFIRST
        atomic { if :: okv -> dev[v] = 0; devmem--; dval[v] = JUNK :: else fi };     /* model: spill.free */
#endif
        if :: !okv -> DRAIN(me) :: else -> okv = 0 fi
#ifdef FAULTS
        fi
#endif
     fi
  :: else
  fi; atomic { h_ = 0; g_ = 0; c_ = 0; old_ = 0 }
}

inline room(me, okr, keep) {         /* model: restore.room - the moving lock is held; any victim, in any order */
  m_ = 0;
  do
  :: atomic { devmem < CAP -> okr = 1; break }
  :: atomic { devmem >= CAP && m_ == 7 -> okr = 0; break }
  :: atomic { devmem >= CAP && m_ != 7 ->
       if :: !(m_ & 1) -> x_ = 0 :: !(m_ & 2) -> x_ = 1 :: !(m_ & 4) -> x_ = 2 fi; m_ = m_ | (1 << x_) };
     spill(me, x_, y_, keep)
  od; atomic { m_ = 0; x_ = 0; y_ = 0 }
}
inline restore(me, r, okr, keep) {   /* the moving lock is held */
  do
  :: atomic { st[r] == RES || dropped[r] || st[r] == FREE -> okr = (st[r] == RES && !dropped[r]); break }
  :: atomic { st[r] == SPG && !dropped[r] -> COV(9); st[r] = RES }    /* marked for a launch that waits; r is wanted here, so the mark comes off */
  :: atomic { st[r] == SPD && !dropped[r] -> y_ = 0 };
     room(me, okr, keep);
     if
     :: !okr -> break
     :: else ->
        atomic { if :: st[r] == SPD && !dropped[r] -> st[r] = RSG; g_ = 1 :: else fi };
        if
        :: !g_                                          /* dropped while room was made */
        :: else ->
        atomic { g_ = 0; if :: devmem < CAP -> devmem++; dev[r] = 1; addr[r] = 1 - addr[r]; g_ = 1 :: else -> COV(10); st[r] = SPD fi };   /* model: restore.allocate - the driver; an allocation that took no lock may have been quicker */
        if
        :: g_ ->
           BOOKS;                                       /* the driver gave memory: from now on the bytes are in use */
           atomic { if :: !dropped[r] -> cnt[r] = 1; in_use++; spilled--; s_in++; raise() :: else -> COV(11) fi; g_ = 0; bl = 0 };
           dval[r] = hval[r];                           /* model: restore.copy */
#ifdef FAULTS
           if
           :: 1 -> BOOKS; atomic { if :: !dropped[r] -> cnt[r] = 0; in_use--; spilled++; s_in--; st[r] = SPD; dev[r] = 0; devmem--; dval[r] = JUNK :: else fi; bl = 0 }; DRAIN(me); okr = 0; break
           :: 1
#endif
           BOOKS;                                       /* model: restore.commit */
#ifdef NODROPCHKIN
           atomic { st[r] = RES; dropped[r] = 0; cnt[r] = 0; g_ = 1; bl = 0 };   /* a store over the whole word */
#else
           atomic { g_ = !dropped[r]; if :: g_ -> st[r] = RES; cnt[r] = 0 :: else -> COV(12) fi; bl = 0 };
#endif
           if :: g_ -> atomic { hostc[r] = 0; hval[r] = JUNK; g_ = 0 } :: else -> DRAIN(me) fi
#ifdef FAULTS
           fi
#endif
        :: else
        fi
        fi
     fi
  od
}
inline unmark() { d_step { if :: st[0] == SPG -> st[0] = RES :: else fi; if :: st[1] == SPG -> st[1] = RES :: else fi; if :: st[2] == SPG -> st[2] = RES :: else fi } }
#define HELD(v) (mem[v] + adm[v] + pins[v] > 0)
#define LETGO(v) (st[v] != SPG || !HELD(v))

#define FREED(r) (st[r] == FREE || dropped[r])

/* A launch uses an array: it is resident where the launch thinks it is, and has what was last written; the kernel writes it. */
#define USE(r, a) atomic { assert(dev[r] && addr[r] == a && dval[r] == val[r]); val[r]++; dval[r] = val[r] }

/* The slow path, without the GIL: all of r0 (and r1) resident and admitted; w says whether it went well. As gomem's slowly and Admit. A nested call
 * takes no ticket, marks nothing and does not wait. */
#ifdef NESTED
#define ISNESTED(me) (me == 5)
#else
#define ISNESTED(me) 0
#endif
inline admit(me, r0, r1, two) {
  if
  :: ISNESTED(me)
  :: !ISNESTED(me) ->
     atomic { my = nextt; nextt = (nextt + 1) % 4 };    /* model: launch.ticket - first come, first served; no lock is held */
     (serving == my)
  fi;
  own_ = (1 << r0) | (1 << r1);
  do
  :: DEVLOCK(me);
     atomic { if :: !kept -> adm[r0]++; if :: two -> adm[r1]++ :: else fi :: else fi };   /* model: launch.admit - all at once, before any of them is restored */
     atomic { i_ = r0; w = 1 };
     do
     :: restore(me, i_, w, !ISNESTED(me));
        if :: w && two && i_ != r1 -> i_ = r1 :: else -> i_ = 0; break fi
     od;
     if
     :: w || FREED(r0) || (two && FREED(r1)) || ISNESTED(me) ->
        if :: !w -> COV(13); adm[r0]--; if :: two -> adm[r1]-- :: else fi :: else fi;
        if :: !ISNESTED(me) -> unmark() :: else fi; DEVUNLOCK(me); break
     :: else ->
#ifdef HOLDWAIT
        kept = 1;
#else
        atomic { adm[r0]--; if :: two -> adm[r1]-- :: else fi };
#endif
        DEVUNLOCK(me);
        /* model: launch.wait - it holds nothing now, but the victims that it needs stay marked. The code polls, besides being woken. */
        COV(3); (LETGO(0) && LETGO(1) && LETGO(2))
     fi
  od;
  if :: !ISNESTED(me) -> serving = (serving + 1) % 4 :: else fi;
  atomic { kept = 0; own_ = 0; my = 0 }
}

inline launch(me, r0, r1, two) {
#ifdef NOGIL
  atomic { ref[r0]++; if :: two -> ref[r1]++ :: else fi; b1_ = (two -> bid[r1] : 0) };
  atomic { ADDLN(me, r0, 1) }; if :: two -> atomic { ADDLN(me, r1, 1) } :: else fi;
#else
  atomic { GILFREE(me) -> GIL_TAKE(me);
    ref[r0]++; if :: two -> ref[r1]++ :: else fi;       /* the argument tuple */
    b1_ = (two -> bid[r1] : 0);
    ADDLN(me, r0, 1); if :: two && !NOWHERE(r1) -> ADDLN(me, r1, 1) :: else fi };   /* model: launch.enter - into the store buffer: not seen yet */
#endif
  atomic { ok = (st[r0] == RES && !dropped[r0]); a0 = addr[r0] };   /* model: launch.check */
  atomic { if :: two -> ok = ok && (st[r1] == RES && !dropped[r1] && !NOWHERE(r1)); a1 = addr[r1] :: else fi };
  w = 1;
  if
  :: ok -> GIL_UNLOCK(me)
  :: else ->
     atomic { ADDLN(me, r0, -1); if :: two && !NOWHERE(r1) -> ADDLN(me, r1, -1) :: else fi; a0 = 0; a1 = 0;      /* model: launch.back-off */
       w = !(two && NOWHERE(r1)); if :: two && w -> BUSY(r1, 1) :: else fi };
     GIL_UNLOCK(me);
     if
     :: w ->
        admit(me, r0, r1, two);
        /* model: launch.admit, second half - from here on the launch is like one of the fast path: launches++ is seen before admitted-- */
        atomic { GILFREE(me) -> GIL_TAKE(me); if :: two -> BUSY(r1, -1) :: else fi };
        if
        :: w ->
#if defined(CONVERTFIRST)
           atomic { adm[r0]--; if :: two -> adm[r1]-- :: else fi };
           atomic { ADDLN(me, r0, 1); if :: two -> ADDLN(me, r1, 1) :: else fi };
#elif defined(CONVERTRELAXED) || defined(ATOM)
           atomic { ADDLN(me, r0, 1) }; if :: two -> atomic { ADDLN(me, r1, 1) } :: else fi;
           adm[r0]--; if :: two -> adm[r1]-- :: else fi;
#else
           atomic { ADDLN(me, r0, 1); if :: two -> ADDLN(me, r1, 1) :: else fi };
           atomic { EMPTY(me) -> adm[r0]-- }; if :: two -> adm[r1]-- :: else fi;      /* a release: drains the store buffer first */
#endif
           atomic { a0 = addr[r0]; if :: two -> a1 = addr[r1] :: else fi }
        :: else -> COV(14)                             /* ValueError: the buffer was freed */
        fi;
        GIL_UNLOCK(me)
     :: else                                            /* the same */
     fi
  fi;
  if
  :: w ->
     /* the launch is under way, the GIL is released */
     USE(r0, a0); if :: two -> atomic { assert(bid[r1] == b1_) }; USE(r1, a1) :: else fi;
#ifdef NOGIL
     atomic { a0 = 0; a1 = 0; ADDLN(me, r0, -1) }; if :: two -> atomic { ADDLN(me, r1, -1) } :: else fi;
#else
     atomic { GILFREE(me) -> GIL_TAKE(me); a0 = 0; a1 = 0;
       ADDLN(me, r0, -1); if :: two -> ADDLN(me, r1, -1) :: else fi }            /* model: launch.leave - always launches-- */
#endif
  :: else -> GIL_LOCK(me)
  fi;
  decref(me, r0); if :: two -> decref(me, r1) :: else fi;
#ifdef NOGIL
  atomic { ok = 0; w = 0; b1_ = 0 }
#else
  atomic { EMPTY(me) -> gil = 0; ok = 0; w = 0; b1_ = 0 }
#endif
}
