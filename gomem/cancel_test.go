package gomem

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCancel(t *testing.T) {
	var never *Cancel
	require.NoError(t, never.err())
	require.Nil(t, never.Done())

	var early, late Cancel // asked for the channel before and after
	channel := early.Done()
	require.NoError(t, early.err())
	select {
	case <-channel:
		t.Fatal("done before it was cancelled")
	default:
	}
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(early.Cancel)
		callers.Go(late.Cancel)
	}
	callers.Wait()
	<-channel
	<-late.Done()
	require.ErrorIs(t, early.err(), ErrCancelled)
	require.ErrorIs(t, late.err(), ErrCancelled)
}
