package gomem

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Thinning keeps exactly the stays that contain one of the moments, however they lie in the chunks.
func TestThinKeepsWhatContainsAMoment(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 300 {
		var l stayLog
		var want []stay
		moments := make([]uint64, random.IntN(5))
		for i := range moments {
			moments[i] = random.Uint64N(40)
		}
		slices.Sort(moments)
		for n := range random.IntN(500) {
			s := stay{from: random.Uint64N(40), index: uint32(n)}
			s.to = s.from + 1 + random.Uint64N(10)
			l.addLocked(s)
			if random.IntN(100) == 0 { // the next one begins a chunk, as it does after an earlier thinning
				l.last.next = new(stayChunk)
				l.last = l.last.next
			}
			if slices.ContainsFunc(moments, s.contains) {
				want = append(want, s)
			}
		}
		if l.first == nil {
			continue
		}
		first, last, count := thin(l.first, moments)
		l.first, l.last = first, last
		var got []stay
		l.allLocked()(func(s *stay) { got = append(got, *s) })
		require.Equal(t, want, got)
		require.Len(t, want, count)
		require.Nil(t, last.next)
	}
}
