/* launch_pass.pml - the launch pass against the spiller, with explicit store buffers; the variants that were weighed, and the one that is built.
 *
 * Variants (-D): PLAIN   counted holds, plain ++/-- under the GIL, membarrier by the spiller: what is built for a GIL and a kernel with membarrier
 *                ATOMIC  counted holds, locked add and subtract: what is built for free-threaded Python, or without membarrier
 *                TICK    a published tick, plain last-use stores, a fence, then the loads: not built (holds what no launch uses; wrong without the GIL)
 *                HAZ     each thread lists its records in its own memory, membarrier by the spiller: not built (right, but slower to scan)
 * Memory: default TSO (a first-in first-out store buffer per thread, x86); -DPSO: it drains in any order between addresses
 * -DNOGIL: free-threaded
 * Mutations: NOFENCE (TICK without its fence), NOMEMB (no membarrier), CHECKFIRST (the holds are read before the state is changed),
 *   LATETICK (the tick is published after the last-use stores; harmless here)
 * EXACT: also, a victim is put back only where some launch really holds it (TICK fails this)
 *
 * The slow path is short here (admission under the lock, no waiting): protocol.pml has it all.
 */
#define NR 2
#define NT 2
#ifndef NL
#define NL 2          /* launches a thread */
#endif
#ifndef NS
#define NS 2          /* spill attempts */
#endif
#define INF 200
#define RES 0
#define SPG 1
#define SPD 2
#define K 6

/* mem: 0,1 active tick of thread; 2,3 last use of record; 4,5 launch count of record */
#define ACT(t) (t)
#define LAST(r) (2+r)
#define LN(r) (4+r)
#define HZ(t,k) (6+2*(t)+(k))   /* slot k of thread t: record+1 or 0 */
byte mem[10];
byte ba[NT*K]; byte bv[NT*K]; byte bn[NT];

byte st[NR]; byte addr[NR]; bit alive[NR]; byte adm[NR];
byte inl[NR];            /* ghost: launches that passed the check and have not ended */
byte tryn[NR]; byte starts[NR]; /* ghost: passes under way or in scope; passes begun */
byte clk = 1;
bit gil, dl;
bit fin[NT];

inline apply_at(t, k) {  /* apply entry k of thread t and close the gap; inside d_step/atomic */
  mem[ba[t*K+k]] = bv[t*K+k];
  j_ = k;
  do
  :: j_ + 1 < bn[t] -> ba[t*K+j_] = ba[t*K+j_+1]; bv[t*K+j_] = bv[t*K+j_+1]; j_++
  :: else -> break
  od;
  bn[t]--; ba[t*K+bn[t]] = 0; bv[t*K+bn[t]] = 0; j_ = 0
}
byte j_, q_;
inline flush(t) { d_step { do :: bn[t] > 0 -> apply_at(t,0) :: else -> break od } }
inline STORE(t, a, v) { atomic { bn[t] < K -> d_step { ba[t*K+bn[t]] = a; bv[t*K+bn[t]] = v; bn[t]++ } } }
inline LOADB(t, a, dst) { /* load with forwarding from the own buffer */
  d_step { dst = mem[a]; q_ = 0;
    do :: q_ < bn[t] -> if :: ba[t*K+q_] == a -> dst = bv[t*K+q_] :: else fi; q_++ :: else -> break od; q_ = 0 } }
inline FENCE(t) { atomic { bn[t] == 0 -> skip } }

#ifdef NOGIL
#define GIL_LOCK(t)   skip
#define GIL_UNLOCK(t) skip
#else
#define GIL_LOCK(t)   atomic { gil == 0 && bn[t] == 0 -> gil = 1 }
#define GIL_UNLOCK(t) atomic { bn[t] == 0 -> gil = 0 }
#endif

proctype drainer(byte t) {
end:  do
#ifndef PSO
  :: d_step { bn[t] > 0 -> apply_at(t,0) }
#else
  :: atomic { bn[t] > 0 -> apply_at(t,0) }
  :: atomic { bn[t] > 1 && ba[t*K+1] != ba[t*K] -> apply_at(t,1) }
  :: atomic { bn[t] > 2 && ba[t*K+2] != ba[t*K] && ba[t*K+2] != ba[t*K+1] -> apply_at(t,2) }
  :: atomic { bn[t] > 3 && ba[t*K+3] != ba[t*K] && ba[t*K+3] != ba[t*K+1] && ba[t*K+3] != ba[t*K+2] -> apply_at(t,3) }
#endif
  od
}

#ifdef TICK
#define ENTER1(r) STORE(t, LAST(r), tick)
#endif
#ifdef ATOMIC
#define ENTER1(r) atomic { bn[t] == 0 -> mem[LN(r)]++ }
#define LEAVE1(r) atomic { bn[t] == 0 -> mem[LN(r)]-- }
#endif
#ifdef HAZ
#define ENTER1(r) STORE(t, HZ(t,r), r+1)
#define LEAVE1(r) STORE(t, HZ(t,r), 0)
#endif
#ifdef PLAIN
#define ENTER1(r) LOADB(t, LN(r), v); STORE(t, LN(r), v+1)
#define LEAVE1(r) LOADB(t, LN(r), v); STORE(t, LN(r), v-1)
#endif

/* thread 0 launches on {0,1}, thread 1 on {1} */
#define BOTH (t == 0)

proctype launcher(byte t) {
  byte n, v, tick, a0, a1; bit ok;
  do
  :: n == NL -> break
  :: n < NL ->
    n++;
    GIL_LOCK(t);
#ifdef EXACT
    d_step { tryn[1]++; starts[1]++; if :: BOTH -> tryn[0]++; starts[0]++ :: else fi };
#endif
#ifdef TICK
#ifdef NOGIL
    atomic { bn[t] == 0 -> clk++; tick = clk };   /* a locked add drains the store buffer */
#else
    atomic { clk++; tick = clk };                 /* under the GIL a plain increment */
#endif
#ifndef LATETICK
    STORE(t, ACT(t), tick);
#endif
#endif
    if :: BOTH -> ENTER1(0) :: else fi;              /* model: launch.enter */
    ENTER1(1);
#ifdef LATETICK
    STORE(t, ACT(t), tick);
#endif
#if defined(TICK) && !defined(NOFENCE)
    FENCE(t);
#endif
    ok = 1;                                          /* model: launch.check */
    if :: BOTH -> atomic { ok = (st[0] == RES); a0 = addr[0] } :: else fi;
    atomic { ok = ok && (st[1] == RES); a1 = addr[1];
      if :: ok -> inl[1]++; if :: BOTH -> inl[0]++ :: else fi :: else fi };
    if
    :: ok ->
      GIL_UNLOCK(t);                   /* the host's driver call releases it */
      if :: BOTH -> assert(alive[0] && addr[0] == a0) :: else fi;
      assert(alive[1] && addr[1] == a1);
      GIL_LOCK(t);                     /* model: launch.leave */
      d_step { inl[1]--; if :: BOTH -> inl[0]-- :: else fi };
#ifdef TICK
      STORE(t, ACT(t), INF);
#else
      if :: BOTH -> LEAVE1(0) :: else fi;
      LEAVE1(1);
#endif
      GIL_UNLOCK(t)
    :: else ->                         /* model: launch.back-off; then the slow path: admitted under the moving lock */
#ifdef TICK
      STORE(t, ACT(t), INF);
#else
      if :: BOTH -> LEAVE1(0) :: else fi;
      LEAVE1(1);
#endif
      GIL_UNLOCK(t);
      atomic { dl == 0 && bn[t] == 0 -> dl = 1 };
      if :: BOTH -> adm[0]++; if :: st[0] == SPD -> alive[0] = 1; addr[0]++; st[0] = RES :: else fi :: else fi;
      adm[1]++; if :: st[1] == SPD -> alive[1] = 1; addr[1]++; st[1] = RES :: else fi;
      assert(st[1] == RES);
      dl = 0;
      if :: BOTH -> a0 = addr[0] :: else fi; a1 = addr[1];
      if :: BOTH -> assert(alive[0] && addr[0] == a0 && st[0] != SPD) :: else fi;
      assert(alive[1] && addr[1] == a1 && st[1] != SPD);
      if :: BOTH -> adm[0]-- :: else fi; adm[1]--
    fi;
#ifdef EXACT
    d_step { tryn[1]--; if :: BOTH -> tryn[0]-- :: else fi };
#endif
    a0 = 0; a1 = 0; v = 0; ok = 0
  od;
  fin[t] = 1
}

proctype spiller() {
  byte n, r, m, l, s0; bit held, got, quiet;
  do
  :: n == NS -> break
  :: n < NS ->
    n++;
    atomic { dl == 0 -> dl = 1 };
    if :: r = 0 :: r = 1 fi;
    held = 0; got = 0;
#ifdef CHECKFIRST
    held = (adm[r] > 0);
#ifdef TICK
    m = INF; if :: mem[ACT(0)] < m -> m = mem[ACT(0)] :: else fi;
    if :: mem[ACT(1)] < m -> m = mem[ACT(1)] :: else fi; l = mem[LAST(r)]; held = held || l >= m;
#else
    held = held || mem[LN(r)] > 0;
#endif
#endif
    if :: !held -> atomic { if :: st[r] == RES -> st[r] = SPG; got = 1;   /* model: spill.mark */
#ifdef EXACT
      quiet = (tryn[r] == 0 && adm[r] == 0 && bn[0] == 0 && bn[1] == 0); s0 = starts[r];
#endif
      :: else fi } :: else fi;
    if
    :: got ->
#if (defined(PLAIN) || defined(HAZ)) && !defined(NOMEMB)
      flush(0); flush(1);              /* model: spill.barrier - not one instant, but each thread in turn */
#endif
#ifndef CHECKFIRST                     /* model: spill.check */
      held = (adm[r] > 0);
#ifdef TICK
      m = INF;
      atomic { if :: mem[ACT(0)] < m -> m = mem[ACT(0)] :: else fi };
      atomic { if :: mem[ACT(1)] < m -> m = mem[ACT(1)] :: else fi };
      l = mem[LAST(r)]; held = held || l >= m;
#elif defined(HAZ)
      atomic { if :: mem[HZ(0,0)] == r+1 -> held = 1 :: else fi };
      atomic { if :: mem[HZ(0,1)] == r+1 -> held = 1 :: else fi };
      atomic { if :: mem[HZ(1,0)] == r+1 -> held = 1 :: else fi };
      atomic { if :: mem[HZ(1,1)] == r+1 -> held = 1 :: else fi };
#else
      held = held || mem[LN(r)] > 0;
#endif
#endif
      if
      :: held ->
#ifdef EXACT
         assert(!(quiet && starts[r] == s0));
#endif
         st[r] = RES
      :: else -> alive[r] = 0; st[r] = SPD
      fi
    :: else
    fi;
    dl = 0; m = 0; l = 0; r = 0; s0 = 0; quiet = 0
  od
}

init { atomic {
  alive[0] = 1; alive[1] = 1; mem[0] = INF; mem[1] = INF;
  run drainer(0); run drainer(1); run launcher(0); run launcher(1); run spiller() } 
  (fin[0] && fin[1] && bn[0] == 0 && bn[1] == 0);
#ifndef TICK
  assert(mem[4] == 0 && mem[5] == 0);     /* holds balance */
#endif
}
