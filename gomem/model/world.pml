/* world.pml - what protocol.pml's threads share: the record, the books, the locks, store buffers, the drop list; and what must hold in every state. Included by
 * protocol.pml; it is no model by itself. */
#ifndef COVN
#define COVN 0
#endif
#define COV(n) assert(COVN != n)
#define NB 3
#define CAP 2
#ifndef NL0
#define NL0 1
#endif
#ifndef NL1
#define NL1 1
#endif
#ifndef NSP
#define NSP 1
#endif
#ifndef HR
#define HR 0
#endif
/* gomem.State */
#define FREE 0
#define BLD 1
#define RES 2
#define SPG 3
#define SPD 4
#define RSG 5
#define JUNK 99          /* contents of memory that holds nothing */
#define K 4              /* entries of a store buffer: a launch pass writes four counts at most before it must drain */
#define NBUFTHR 2        /* L0 and L1 have store buffers; the others use atomic operations only */
#ifdef NOGIL
#ifndef PLAINNOGIL
#define ATOM
#endif
#endif

/* ---- the record (gomem.Record) */
byte mem[NB];                      /* Launches, as memory sees them */
byte st[NB]; bit dropped[NB];      /* Word: changed together, by compare-and-swap */
byte adm[NB], pins[NB], gen[NB];   /* Admitted, Pins, Generation: atomic */
bit addr[NB];                      /* Address: flips at each device allocation */
#ifndef ATOM
byte ba[NBUFTHR*K]; byte bv[NBUFTHR*K]; byte bn[NBUFTHR];
#define EMPTY(me) (me >= NBUFTHR || bn[me] == 0)
#else
#define EMPTY(me) (1)
#endif
/* ---- the books (gomem.Books) and the locks */
byte in_use, spilled, pending, peak, s_out, s_in, s_freed;
bit sopen; byte speak;             /* one peak scope */
bit bl;                            /* the books lock: a leaf */
byte dl;                           /* the moving lock: thread + 1 */
byte gil;                          /* thread + 1 */
byte dlist;                        /* the drop list, as a set */
bit draining, dr_;                 /* the drainer is called; ghost: it is at work */
byte nextt, serving;               /* the turnstile: next ticket, ticket whose turn it is */
/* ---- the world, and ghosts that only the checks read */
byte ref[NB];                      /* Python references to the Buffer in the record */
byte bid[NB];                      /* ghost: which buffer lives in the record */
bit dev[NB], hostc[NB];            /* a device copy, a host copy exists */
bit cnt[NB];                       /* Restoring: the driver has given memory, so the buffer counts in in_use */
byte dval[NB], hval[NB], val[NB];  /* contents of each copy; ghost: what the program last wrote */
byte devmem;                       /* device memory in use */
byte nbid = NB; byte done, want; bit p2gone;
#ifdef WITH_E
bit nowhere, gone;                 /* buffer 2, as Python sees it: being freed; freed */
byte busy;                         /* threads on their way into the slow path with its index; written under the GIL */
#define NOWHERE(r) (r == 2 && nowhere)
#define GONE(r) (r == 2 && gone)
#define BUSY(r, d) if :: r == 2 -> busy = busy + d :: else fi
#else
#define NOWHERE(r) 0
#define GONE(r) 0
#define BUSY(r, d) skip
#endif
byte j_, q_, t_, u_, v_;

/* ---- what must hold in every state (process mon) */
#define ONDEV(r)  (st[r] == RES || st[r] == SPG || (st[r] == RSG && cnt[r]))     /* counts in in_use */
#define INUSE(r)  (!dropped[r] && ONDEV(r))
#define INHOST(r) (!dropped[r] && (st[r] == SPD || (st[r] == RSG && !cnt[r])))
#define DEVTRUE(r)  (!dropped[r] && (st[r] == RES || st[r] == SPG))
#define HOSTTRUE(r) (!dropped[r] && (st[r] == SPD || st[r] == RSG))
#define OKREC(r) ((!DEVTRUE(r) || (dev[r] && dval[r] == val[r])) && (!HOSTTRUE(r) || (hostc[r] && hval[r] == val[r])))
#define BOOKSOK (in_use == INUSE(0)+INUSE(1)+INUSE(2) && spilled == INHOST(0)+INHOST(1)+INHOST(2) && \
  s_out + 1 == s_in + s_freed + spilled && in_use <= peak && (!sopen || (in_use <= speak && speak <= peak)))   /* +1: buffer 2 starts spilled */
#define DATAOK (OKREC(0) && OKREC(1) && OKREC(2))            /* what the program wrote last is in the true copy */
#define MEMORYOK (devmem == dev[0]+dev[1]+dev[2] && devmem <= CAP)
#define COUNTSOK (bl || (BOOKSOK && in_use <= 3 && spilled <= 3 && pending <= 3))       /* whoever has the books lock may see them in between */

/* ---- store buffers */
inline apply0(t) { mem[ba[t*K]] = bv[t*K]; j_ = 0;
  do :: j_ + 1 < bn[t] -> ba[t*K+j_] = ba[t*K+j_+1]; bv[t*K+j_] = bv[t*K+j_+1]; j_++ :: else -> break od;
  bn[t]--; ba[t*K+bn[t]] = 0; bv[t*K+bn[t]] = 0; j_ = 0 }
inline flush(t) { d_step { do :: bn[t] > 0 -> apply0(t) :: else -> break od } }
inline ADDLN(t, r, dlt) {            /* launches of r += dlt, inside an atomic block */
#ifdef ATOM
  mem[r] = mem[r] + dlt
#else
  v_ = mem[r]; q_ = 0;
  do :: q_ < bn[t] -> if :: ba[t*K+q_] == r -> v_ = bv[t*K+q_] :: else fi; q_++ :: else -> break od;
  assert(bn[t] < K); ba[t*K+bn[t]] = r; bv[t*K+bn[t]] = v_ + dlt; bn[t]++; q_ = 0; v_ = 0
#endif
}

/* ---- locks. Order: GIL and moving lock never wait for one another; the books lock is a leaf under both. */
#ifdef NOGIL
#define GILFREE(me) 1
#define GIL_TAKE(me) skip
#define GIL_UNLOCK(me) skip
#else
#define GILFREE(me) (gil == 0 && EMPTY(me))
#define GIL_TAKE(me) assert(dl != me+1); gil = me+1         /* who holds the moving lock never waits for the GIL */
#define GIL_UNLOCK(me) atomic { EMPTY(me) -> gil = 0 }
#endif
#define GIL_LOCK(me) atomic { GILFREE(me) -> GIL_TAKE(me) }
#define BOOKS atomic { bl == 0 -> bl = 1 }

inline freerec(r) {                  /* the driver frees, the host memory goes back to its pool, the record is free for another buffer */
  if :: dev[r] -> dev[r] = 0; devmem--; dval[r] = JUNK :: else fi;
  if :: hostc[r] -> hostc[r] = 0; hval[r] = JUNK :: else fi;
  assert(dropped[r] && st[r] != FREE); pending--; gen[r]++; dropped[r] = 0; cnt[r] = 0; st[r] = FREE; bid[r] = 0; val[r] = 0; }
inline drain_(me) {                  /* model: drop.drain */
  assert(dl == me+1); t_ = dlist; dlist = 0;
  do :: t_ != 0 -> u_ = (t_ & 1 -> 0 : (t_ & 2 -> 1 : 2)); t_ = t_ - (1 << u_); freerec(u_) :: else -> break od; u_ = 0 }
#define DRAIN(me) atomic { bl == 0 -> drain_(me) }     /* pending falls under the books lock */
#define DEVLOCK(me) atomic { dl == 0 && EMPTY(me) -> assert(gil != me+1); dl = me+1 }; DRAIN(me)

inline DEVUNLOCK(me) {
  dl = 0;
#ifndef NORECHECK
  do                                 /* model: unlock.recheck */
  :: dlist == 0 -> break
  :: dlist != 0 -> if :: atomic { dl == 0 && bl == 0 -> COV(4); dl = me+1; drain_(me); dl = 0 } :: dl != 0 -> COV(5); break fi
  od
#endif
}
inline raise() {                     /* model: peak.rise (under the books lock) */
  if :: in_use > peak -> peak = in_use :: else fi; if :: sopen && in_use > speak -> speak = in_use :: else fi }
