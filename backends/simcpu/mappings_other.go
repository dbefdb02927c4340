//go:build !linux

package simcpu

import "math"

// No limit of mappings is known here.
func mappingLimit() int { return math.MaxInt }
func mostBlocks() int   { return math.MaxInt }
func mappingsUsed() int { return 0 }
