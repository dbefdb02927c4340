//go:build !linux

package simcpu

// adviseHuge does nothing here: the system has no such advice.
func adviseHuge([]byte) {}
