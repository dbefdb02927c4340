//go:build race

package gomem

// raceBuild says that memory is Go's, which cannot give single pages back.
const raceBuild = true

// fewerChecked returns the smaller number: this build is some fifty times as slow.
func fewerChecked(_, checked int) int { return checked }
