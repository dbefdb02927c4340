package common_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/common"
)

var errStep = errors.New("a step failed")

// TestLife: a device starts at its first use, again where that failed, and after Close nothing works, also where closing failed half-way.
func TestLife(t *testing.T) {
	starts, fail := 0, true
	life := common.NewLife("sim:0", func() error {
		starts++
		if fail {
			return errStep
		}
		return nil
	})
	assert.False(t, life.Shared(), "asking starts nothing")
	require.ErrorIs(t, life.Use(), errStep)
	fail = false
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if assert.NoError(t, life.Use()) {
				defer life.Done()
			}
		})
	}
	group.Wait()
	assert.Equal(t, 2, starts, "once, and once more after the failure")
	require.True(t, life.Shared())
	life.Done()

	require.ErrorIs(t, life.Change(func() error { return errStep }), errStep)
	require.NoError(t, life.Use(), "a change that failed changed nothing")
	life.Done()

	ends := 0
	end := func() error {
		ends++
		if ends == 1 {
			return errStep
		}
		return nil
	}
	err := life.Close(end)
	require.ErrorIs(t, err, errStep)
	assert.ErrorContains(t, err, "closing: ")
	for _, closed := range []error{life.Use(), life.Change(func() error { return nil })} {
		require.ErrorIs(t, closed, common.ErrClosed)
		assert.ErrorContains(t, closed, "sim:0")
	}
	assert.False(t, life.Shared())
	require.NoError(t, life.Close(end))
	require.NoError(t, life.Close(end))
	assert.Equal(t, 2, ends, "again after the failure, and then no more")
	assert.Equal(t, 2, starts)
}

// TestLifeStartedByAChange: a host's context makes a device usable as its own start does.
func TestLifeStartedByAChange(t *testing.T) {
	life := common.NewLife("sim:0", func() error { return errStep })
	require.NoError(t, life.Change(func() error { return nil }))
	require.NoError(t, life.Use())
	life.Done()
}
