//go:build !darwin

package metal_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tack-memory/tack-memory/backends/metal"
)

func TestElsewhereNothingIsLoaded(t *testing.T) {
	library, err := metal.Load()
	assert.Nil(t, library)
	assert.ErrorIs(t, err, metal.ErrNotMacOS)
	assert.EqualError(t, err, "macOS only")
}
