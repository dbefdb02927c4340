/* turnstile.pml - two launches that each need the whole device: thread 0 on {0,1}, thread 1 on {2,3}, room for two. Deadlock and starvation.
 *
 * What is built: a launch that cannot be satisfied gives up all its holds, leaves the victims that it needs marked `spilling` so that no new launch takes
 * them, keeps its place in a first-come turnstile, and waits for the holds on the marked ones to end. After the slow path it is a launch like any other
 * (admitted becomes launches, protocol.pml).
 * Policies that were not taken (each is caught): RETRY (give up all holds, put the victims back, try again when something ended), HOLDWAIT (keep
 * the holds already taken while waiting), ERROR (no waiting: fail), TICKPROT (as RETRY, but the waiting launch stays protected by its tick)
 *
 * -DLOOP1: thread 1 launches for ever, does thread 0 get its turn? (ltl p)    -DLOOPB: both for ever (ltl q)
 * -DHOSTLOCK: thread 0 takes a lock of the host before its launches, thread 1 takes the same lock inside its scope; -DDEADLINE: the wait ends with
 *   an error when nothing else can run
 * -DNEST: thread 0 holds buffer 0 in an outer scope while it launches on {0,1}; nested launches take no ticket and never wait, they may fail
 * -DNESTTICKET (with NEST): a mutation, the nested launch queues for the turnstile and waits like others
 */
#define RES 2
#define SPG 3
#define SPD 4
#ifndef N
#define N 3
#endif
byte st[4]; byte hold[4]; byte adm[4]; byte devmem = 2; bit dl;
byte nextt, serving; bit woken[2]; bit hl; bit in[2]; bit alone_failed; byte fin; byte cnt[2];
byte last[4]; byte act[2] = 255; byte clk = 1;
#define HELD(v) (hold[v] + adm[v] > 0)
#define PROT(v) (last[v] >= act[0] || last[v] >= act[1])

inline victim(v, r0, r1) {
  if
  :: v != r0 && v != r1 && need > 2 - devmem && (st[v] == RES || st[v] == SPG) ->
     st[v] = SPG;
#ifdef TICKPROT
     h = HELD(v) || PROT(v);
#else
     h = HELD(v);
#endif
     if
     :: !h -> atomic { st[v] = SPD; devmem-- }
     :: else ->
#if defined(RETRY) || defined(HOLDWAIT) || defined(ERROR) || defined(TICKPROT)
        st[v] = RES
#else
        if :: nested -> st[v] = RES :: else fi           /* stays marked */
#endif
     fi
  :: else
  fi
}
inline unmark() { d_step { if :: st[0] == SPG -> st[0] = RES :: else fi; if :: st[1] == SPG -> st[1] = RES :: else fi;
                           if :: st[2] == SPG -> st[2] = RES :: else fi; if :: st[3] == SPG -> st[3] = RES :: else fi } }
#define CLEAR(v) (st[v] != SPG || !HELD(v))

proctype T(byte id; byte r0; byte r1; bit forever; bit nested) {
  byte need, my; bit ok, h, kept, failed;
  do
  :: forever || cnt[id] < N ->
#ifdef HOSTLOCK
     if :: id == 0 -> atomic { hl == 0 -> hl = 1 } :: else fi;
#endif
     atomic { failed = 0; clk = (clk < 20 -> clk+1 : clk); act[id] = clk; last[r0] = clk; last[r1] = clk; hold[r0]++; hold[r1]++ };
     ok = (st[r0] == RES && st[r1] == RES);             /* model: launch.check */
     if
     :: ok
     :: else ->
#ifdef TICKPROT
        atomic { hold[r0]--; hold[r1]--; woken[0] = 1; woken[1] = 1 };
#else
        atomic { hold[r0]--; hold[r1]--; act[id] = 255; woken[0] = 1; woken[1] = 1 };
#endif
#if !defined(RETRY) && !defined(HOLDWAIT) && !defined(ERROR) && !defined(TICKPROT)   /* model: launch.ticket */
        if :: !nested -> atomic { my = nextt; nextt = (nextt + 1) % 4 }; (serving == my) :: else fi;
#endif
        do                                              /* model: launch.admit */
        :: atomic { dl == 0 -> dl = 1; woken[id] = 0; if :: !kept -> adm[r0]++; adm[r1]++ :: else fi };
           d_step { if :: st[r0] == SPG -> st[r0] = RES :: else fi; if :: st[r1] == SPG -> st[r1] = RES :: else fi;
                    need = (st[r0] == SPD) + (st[r1] == SPD) };
           victim(0, r0, r1); victim(1, r0, r1); victim(2, r0, r1); victim(3, r0, r1);
           if
           :: need <= 2 - devmem ->
              d_step { if :: st[r0] == SPD -> st[r0] = RES; devmem++ :: else fi; if :: st[r1] == SPD -> st[r1] = RES; devmem++ :: else fi; assert(devmem <= 2) };
              if :: !nested -> unmark() :: else fi;
              atomic { dl = 0; kept = 0 };
#if !defined(RETRY) && !defined(HOLDWAIT) && !defined(ERROR) && !defined(TICKPROT)
              if :: !nested -> serving = (serving + 1) % 4 :: else fi;
#endif
              break
           :: else ->
#ifdef ERROR
              assert(0);                      /* a launch that would fit alone fails because another runs */
#endif
              if
              :: nested -> atomic { adm[r0]--; adm[r1]--; dl = 0; woken[0] = 1; woken[1] = 1; failed = 1 }; break
              :: else ->
#ifdef HOLDWAIT
                 kept = 1; dl = 0;
#else
                 atomic { adm[r0]--; adm[r1]--; woken[1-id] = 1; dl = 0 };
#endif
#if defined(RETRY) || defined(HOLDWAIT) || defined(ERROR) || defined(TICKPROT)
                 (woken[id])
#else
                 if                                     /* model: launch.wait */
                 :: (CLEAR(0) && CLEAR(1) && CLEAR(2) && CLEAR(3))
#ifdef DEADLINE
                 :: timeout -> atomic { dl == 0 -> dl = 1 }; unmark(); atomic { dl = 0; serving = (serving + 1) % 4; failed = 1; woken[1-id] = 1 }; break
#endif
                 fi
#endif
              fi
           fi
        od
     fi;
     if
     :: !failed ->
        if :: !ok -> atomic { hold[r0]++; hold[r1]++ }; atomic { adm[r0]--; adm[r1]-- } :: else fi;
        atomic { in[id] = 1; cnt[id] = (forever -> 0 : cnt[id] + 1) };
        assert(st[r0] != SPD && st[r1] != SPD);
#ifdef HOSTLOCK
        if :: id == 1 -> atomic { hl == 0 -> hl = 1 }; hl = 0 :: else fi;
#endif
        in[id] = 0;
        atomic { act[id] = 255; hold[r0]--; hold[r1]--; ok = 0; woken[0] = 1; woken[1] = 1 }     /* model: launch.leave */
     :: else -> cnt[id] = cnt[id] + 1
     fi
#ifdef HOSTLOCK
     ; if :: id == 0 -> hl = 0 :: else fi
#endif
  :: !forever && cnt[id] >= N -> break
  od;
  if :: nested -> atomic { hold[r0]--; woken[0] = 1; woken[1] = 1 } :: else fi;
  fin++
}
init { atomic {
  st[0] = RES; st[1] = SPD; st[2] = RES; st[3] = SPD;
#ifdef NEST
  hold[0]++;                 /* its outer scope */
#ifdef NESTTICKET
  run T(0, 0, 1, 0, 0);
#else
  run T(0, 0, 1, 0, 1);
#endif
#elif defined(LOOPB)
  run T(0, 0, 1, 1, 0);
#else
  run T(0, 0, 1, 0, 0);
#endif
#if defined(LOOP1) || defined(LOOPB)
  run T(1, 2, 3, 1, 0)
#else
  run T(1, 2, 3, 0, 0)
#endif
  } }
#ifdef LOOP1
ltl p { <> (cnt[0] >= N) }
#endif
#ifdef LOOPB
ltl q { ([]<> (in[0])) && ([]<> (in[1])) }
#endif
