/* peaks.pml - are peak scopes exact while others allocate and free?
 *
 * What is built: rise, fall, opening and closing are each one step under the books lock (model: peak.rise).
 * -DLOCKFREE: a rise is an atomic add and then a compare-and-swap maximum into each open scope, opening is register and then read, closing is read and then
 *   unregister. Not built, since it is not exact: a rise that is under way while a scope opens or closes is counted where it was not, or missed (checks 1 to 3).
 * -DFALLOUTSIDE: falls are one atomic subtraction outside the lock (harmless for peaks; the other identities need the lock).
 * -DONLY=n: only assertion n. Mutations: LATESCOPE (a rise looks for open scopes after it let go of the lock), OPENLATE (an opening reads in_use before it takes the lock)
 *
 * What a scope reports lies between the highest in_use over [open returned, close called] and that over [open called, close returned]; under the
 * lock it equals the highest between the read in open and the read in close. Two allocators (3 and 2 units, each NA times), one thread that opens NSC scopes in
 * turn inside an outer one.
 */
#ifndef NA
#define NA 2
#endif
#ifndef NSC
#define NSC 2
#endif
byte in_use = 4, dpeak = 4, bl, fin;
bit open[2]; byte pk[2];
byte lo, hi, ex, dg = 4; bit lon, hin, exn;   /* ghosts */
inline gh() { if :: lon && in_use > lo -> lo = in_use :: else fi; if :: hin && in_use > hi -> hi = in_use :: else fi;
              if :: exn && in_use > ex -> ex = in_use :: else fi; if :: in_use > dg -> dg = in_use :: else fi }

proctype A(byte n; byte base) { byte i, v;
  if :: base -> atomic { bl == 0 -> in_use = in_use - n } :: else fi;      /* one of the two starts by freeing what was live */
  do
  :: i < NA -> i++;
#ifdef LOCKFREE
     atomic { in_use = in_use + n; v = in_use; gh() };
     atomic { if :: v > dpeak -> dpeak = v :: else fi };
     if :: open[0] -> atomic { if :: v > pk[0] -> pk[0] = v :: else fi } :: else fi;
     if :: open[1] -> atomic { if :: v > pk[1] -> pk[1] = v :: else fi } :: else fi;
#else
     atomic { bl == 0 -> bl = 1 };
     atomic { in_use = in_use + n; v = in_use; gh() };      /* model: peak.rise */
     if :: v > dpeak -> dpeak = v :: else fi;
#ifdef LATESCOPE
     bl = 0;
#endif
     if :: open[0] && v > pk[0] -> pk[0] = v :: else fi;
     if :: open[1] && v > pk[1] -> pk[1] = v :: else fi;
#ifndef LATESCOPE
     bl = 0;
#endif
#endif
     v = 0;
#if defined(LOCKFREE) || defined(FALLOUTSIDE)
     atomic { in_use = in_use - n }
#else
     atomic { bl == 0 -> bl = 1 }; in_use = in_use - n; bl = 0
#endif
  :: else -> break
  od; fin++ }

inline openscope(s) {
#ifdef LOCKFREE
  pk[s] = 0; open[s] = 1; v = in_use; atomic { if :: v > pk[s] -> pk[s] = v :: else fi }; v = 0
#elif defined(OPENLATE)
  v = in_use; atomic { bl == 0 -> bl = 1 }; atomic { pk[s] = v; v = 0; if :: s == 0 -> ex = in_use; exn = 1 :: else fi }; open[s] = 1; bl = 0
#else
  atomic { bl == 0 -> bl = 1 }; atomic { pk[s] = in_use; if :: s == 0 -> ex = in_use; exn = 1 :: else fi }; open[s] = 1; bl = 0
#endif
}
inline closescope(s) {
#ifdef LOCKFREE
  v = in_use; atomic { if :: v > pk[s] -> pk[s] = v :: else fi }; v = 0; open[s] = 0
#else
  atomic { bl == 0 -> bl = 1 }; if :: s == 0 -> exn = 0 :: else fi; open[s] = 0; bl = 0
#endif
}
proctype P() { byte i, v;
  openscope(1);
  do
  :: i < NSC -> i++;
     atomic { hi = in_use; hin = 1 };
     openscope(0);
     atomic { lo = in_use; lon = 1 };
     atomic { lon = 0 };
     closescope(0);
     atomic { hin = 0;
#if !defined(ONLY) || ONLY == 1
       assert(pk[0] <= hi);           /* nothing from before it opened or after it closed */
#endif
#if !defined(ONLY) || ONLY == 2
       assert(pk[0] >= lo);           /* no rise inside it is missed */
#endif
#if !defined(LOCKFREE)
       assert(pk[0] == ex);
#endif
#if !defined(ONLY) || ONLY == 3
       assert(pk[1] >= pk[0]);        /* an outer scope is never below an inner one */
#endif
       lo = 0; hi = 0; ex = 0; pk[0] = 0 }
  :: else -> break
  od;
  closescope(1); fin++ }
init { atomic { run A(3, 0); run A(2, 1); run P() }; (fin == 3); assert(dpeak == dg) }
