/* at_peak.pml - is what was live at a peak told exactly, while others allocate, free, and thin what is kept?
 *
 * What is built (gomem/stays.go, atpeak.go): a moment is the number of changes of in_use so far. Who leaves the device notes its stay, if it contains a moment that
 * may be asked for. Who reads looks at the records part by part (a part is one buffer here), each with the moment of the look, and then at the
 * stays that have ended. Who thins takes all stays out of the list, and puts back those that contain the peak of a scope that is open.
 *
 * What happens under the books lock is one step here. NB buffers of sizes 1, 2, 4, so that a buffer that is missed or told twice shows in the sum, and each comes and goes NS times; an outer scope, and an inner one that
 * opens and closes NSC times; a thinner.
 * Mutations: NOLOOKED (a stay that ended is told, whether its buffer was seen or not), NOREADING (closing a scope lets go of its stays before they are read),
 *   MOMENTSFIRST (the thinner reads the peaks before it takes the stays), OLDESTONLY (who leaves looks at the outer scope's moment only),
 *   NOMUTEX (thinning while somebody reads)
 */
#ifndef NB
#define NB 2
#endif
#ifndef NS
#define NS 2
#endif
#ifndef NSC
#define NSC 1
#endif
#define NSTAY 6   /* NB * NS at most */
byte mu, seq, in_use, fin;
bit live[NB]; byte entered[NB];
byte from[NSTAY], to[NSTAY]; bit noted[NSTAY], taken[NSTAY];   /* of stay b * NS + n */
bit open[2]; byte pk[2], at[2];                                 /* 0: the outer scope */
bit reading; byte asked;
#define SIZE(b) (1 << (b))
#define contains(s, m) (from[s] <= m && m < to[s])

proctype B(byte b) { byte n, s, newest; bit any;
  do
  :: n < NS ->
     atomic { seq++; entered[b] = seq; live[b] = 1; in_use = in_use + SIZE(b);
       if :: open[0] && in_use > pk[0] -> pk[0] = in_use; at[0] = seq :: else fi;
       if :: open[1] && in_use > pk[1] -> pk[1] = in_use; at[1] = seq :: else fi };
     atomic { seq++; live[b] = 0; in_use = in_use - SIZE(b); s = b * NS + n;      /* model: stays.end */
       any = 0; newest = 0;
       if :: reading -> any = 1; newest = asked :: else fi;
#ifdef OLDESTONLY
       if :: open[0] -> any = 1; newest = (at[0] > newest -> at[0] : newest) :: else fi;
#else
       if :: open[1] -> any = 1; newest = (at[1] > newest -> at[1] : newest)
          :: !open[1] && open[0] -> any = 1; newest = (at[0] > newest -> at[0] : newest) :: else fi;
#endif
       if :: any && entered[b] <= newest -> from[s] = entered[b]; to[s] = seq; noted[s] = 1 :: else fi; s = 0; newest = 0; any = 0; entered[b] = 0; n++ }
  :: else -> break
  od; fin++ }

inline tell(k) {
#ifndef NOMUTEX
  atomic { mu == 0 -> mu = 1 };
#endif
  atomic { moment = at[k]; open[k] = 0;      /* model: past.close */
#ifndef NOREADING
    reading = 1; asked = moment;
#endif
  };
  b = 0; sum = 0;
  do
  :: b < NB -> atomic { looked[b] = seq;      /* model: past.look */
       if :: live[b] && entered[b] <= moment -> sum = sum + SIZE(b) :: else fi; b++ }
  :: else -> break
  od;
  atomic { s = 0;      /* model: past.ended */
    do
    :: s < NB * NS ->
#ifdef NOLOOKED
       if :: noted[s] && contains(s, moment) -> sum = sum + SIZE(s / NS) :: else fi;
#else
       if :: noted[s] && contains(s, moment) && to[s] <= looked[s / NS] -> sum = sum + SIZE(s / NS) :: else fi;
#endif
       s++
    :: else -> break
    od; s = 0; b = 0 };
  atomic { assert(sum == pk[k]); sum = 0; moment = 0; b = 0;
    do :: b < NB -> looked[b] = 0; b++ :: else -> break od; b = 0;
    reading = 0; asked = 0; pk[k] = 0; at[k] = 0 };
#ifndef NOMUTEX
  mu = 0
#endif
}
inline openscope(k) { atomic { pk[k] = in_use; at[k] = seq; open[k] = 1 } }

proctype S() { byte i, b, s, sum, moment; byte looked[NB];
  openscope(0);
  do
  :: i < NSC -> i++; openscope(1); tell(1)
  :: else -> break
  od;
  tell(0); fin++ }

inline moments() { atomic { m0 = at[0]; o0 = open[0]; m1 = at[1]; o1 = open[1] } }   /* model: stays.moments */
proctype T() { byte s, m0, m1; bit o0, o1;
  atomic { mu == 0 -> mu = 1 };
#ifdef MOMENTSFIRST
  moments();
#endif
  atomic { s = 0;      /* model: stays.detach */
    do :: s < NB * NS -> taken[s] = noted[s]; noted[s] = 0; s++ :: else -> break od; s = 0 };
#ifndef MOMENTSFIRST
  moments();
#endif
  atomic { s = 0;      /* model: stays.attach */
    do
    :: s < NB * NS ->
       if :: taken[s] && ((o0 && contains(s, m0)) || (o1 && contains(s, m1))) -> noted[s] = 1
          :: else -> if :: taken[s] -> from[s] = 0; to[s] = 0 :: else fi fi;
       taken[s] = 0; s++
    :: else -> break
    od; s = 0 };
  mu = 0; fin++ }

init { atomic { byte b = 0; do :: b < NB -> run B(b); b++ :: else -> break od; run S(); run T() }; (fin == NB + 2) }
