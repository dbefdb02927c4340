//go:build invariants

package gomem

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLockRanks(t *testing.T) {
	acquired(rankMoving)
	require.PanicsWithValue(t, `gomem: lock order: "turnstile" is taken while "moving" is held (held: [moving])`, func() { acquired(rankTurnstile) })
	require.Panics(t, func() { acquired(rankMoving) }, "two of the same rank")
	var other sync.WaitGroup
	other.Go(func() { // another goroutine holds nothing
		acquired(rankTurnstile)
		acquired(rankMoving)
		released(rankTurnstile) // in any order
		released(rankMoving)
	})
	other.Wait()
	require.Panics(t, func() { released(rankTurnstile) })
	caught := false
	for range leafSample { // one of these is recorded
		acquired(rankPool)
		caught = caught || !notPanics(func() {
			acquired(rankTurnstile)
			released(rankTurnstile)
		})
		released(rankPool)
	}
	require.True(t, caught, "a lock under a leaf")
	released(rankMoving)
	acquired(rankTurnstile)
	released(rankTurnstile)
	require.Empty(t, heldByCaller())
}

func notPanics(f func()) (ok bool) {
	defer func() { ok = recover() == nil }()
	f()
	return true
}
