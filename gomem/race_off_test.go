//go:build !race

package gomem

// raceBuild says that memory is Go's, which cannot give single pages back.
const raceBuild = false

// fewerChecked returns the larger number.
func fewerChecked(n, _ int) int { return n }
