/* memory_order.pml - which memory orders the launch pass needs where loads and stores may pass one another (ARM64).
 *
 * The pass is a handful of operations that may take effect in any order that their annotations allow. membarrier completes, at its instant,
 * everything that precedes an operation that has already taken effect.
 *
 * Default: the fast path against spill and restore.
 *   0 launches++ (plain)   1 load state (acquire)   2 load address (plain)   3 use (driver call)   4 launches-- (release)
 *   Mutations: NOACQ, NORELEXIT (launches-- relaxed), NORELRES (a restore publishes resident without release), NOMEMB
 * -DCONVERT: the end of the slow path; the launch is admitted already.
 *   0 launches++ (plain)   1 admitted-- (release)   2 use   3 launches-- (release)
 *   The spiller reads admitted (acquire) and then launches.
 *   Mutations: RELAXED (admitted-- relaxed), SWAPPED (the spiller reads launches first), NOACQREAD (its two loads may pass one another), NORELEXIT, NOMEMB (harmless here: admitted is atomic)
 */
#define RES 0
#define SPG 1
#define SPD 2
#ifndef CONVERT
#ifndef NP
#define NP 3
#endif
#ifndef NS
#define NS 2
#endif
byte st, ptr = 1, gptr = 1, ln; bit alive = 1;
bit d[5]; byte s_, p_; bit fin;
#define maxop (d[4] -> 4 : (d[3] -> 3 : (d[2] -> 2 : (d[1] -> 1 : 0))))

inline op(i) {
  if
  :: i == 0 -> ln++                    /* model: launch.enter */
  :: i == 1 -> s_ = st                 /* model: launch.check */
  :: i == 2 -> p_ = ptr
  :: i == 3 -> if :: s_ == RES -> assert(alive && p_ == gptr) :: else fi
  :: i == 4 -> ln--
  fi; d[i] = 1 }

active proctype launcher() {
  byte n;
  do
  :: n == NP -> break
  :: n < NP -> n++;
    do
    :: atomic { !d[0] -> op(0) }
    :: atomic { !d[1] -> op(1) }
#ifdef NOACQ
    :: atomic { !d[2] -> op(2) }
#else
    :: atomic { !d[2] && d[1] -> op(2) }
#endif
    :: atomic { !d[3] && d[1] && d[2] -> op(3) }        /* control and data dependence into the driver call */
#ifdef NORELEXIT
    :: atomic { !d[4] && d[0] && d[1] -> op(4) }        /* same address as 0; not speculated past the branch on 1 */
#else
    :: atomic { !d[4] && d[0] && d[1] && d[2] && d[3] -> op(4) }
#endif
    :: atomic { d[0] && d[1] && d[2] && d[3] && d[4] -> d_step { d[0]=0; d[1]=0; d[2]=0; d[3]=0; d[4]=0; s_=0; p_=0 } ; break }
    od
  od; fin = 1
}
byte k_;
inline memb() { atomic { k_ = 0; do :: k_ < 5 && k_ < maxop -> if :: !d[k_] -> op(k_) :: else fi; k_++ :: else -> break od; k_ = 0 } }

active proctype spiller() {
  byte n;
  do
  :: n == NS -> break
  :: n < NS -> n++;
    st = SPG;                                /* model: spill.mark */
#ifndef NOMEMB
    memb();                                  /* model: spill.barrier */
#endif
    if                                       /* model: spill.check */
    :: atomic { ln > 0 -> st = RES }
    :: atomic { ln == 0 -> alive = 0; gptr = 0; ptr = 0 };
       st = SPD;
       /* model: restore.commit - the address is written before the state */
       atomic { alive = 1; gptr = n + 1 };
#ifdef NORELRES
       st = RES; ptr = n + 1
#else
       ptr = n + 1; st = RES
#endif
    fi
  od
}
#else
byte st, ln, adm = 1; bit alive = 1; bit d[4]; byte k_;

inline op(i) {
  if
  :: i == 0 -> ln++                    /* model: launch.admit, second half */
  :: i == 1 -> adm--
  :: i == 2 -> assert(alive)
  :: i == 3 -> ln--                    /* model: launch.leave */
  fi; d[i] = 1 }

active proctype launcher() {
  do
  :: atomic { !d[0] -> op(0) }
#ifdef RELAXED
  :: atomic { !d[1] -> op(1) }
#else
  :: atomic { !d[1] && d[0] -> op(1) }
#endif
  :: atomic { !d[2] -> op(2) }
#ifdef NORELEXIT
  :: atomic { !d[3] && d[0] -> op(3) }
#else
  :: atomic { !d[3] && d[0] && d[1] && d[2] -> op(3) }
#endif
  :: d[0] && d[1] && d[2] && d[3] -> break
  od
}
#define maxop (d[3] -> 3 : (d[2] -> 2 : (d[1] -> 1 : 0)))
inline memb() { atomic { k_ = 0; do :: k_ < 4 && k_ < maxop -> if :: !d[k_] -> op(k_) :: else fi; k_++ :: else -> break od; k_ = 0 } }

active proctype spiller() {
  bit held;
  st = SPG;                            /* model: spill.mark */
#ifndef NOMEMB
  memb();                              /* model: spill.barrier */
#endif
  /* model: spill.check */
#if defined(SWAPPED)
  held = (ln > 0); held = held || (adm > 0);
#elif defined(NOACQREAD)
  if :: held = (ln > 0); held = held || (adm > 0) :: held = (adm > 0); held = held || (ln > 0) fi;
#else
  held = (adm > 0); held = held || (ln > 0);
#endif
  if :: held -> st = RES :: else -> alive = 0; st = SPD fi
}
#endif
