//go:build !linux

package mac

// thread cannot tell threads apart here.
func thread() int { return 0 }
