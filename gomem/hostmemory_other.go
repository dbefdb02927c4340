//go:build !linux && !darwin

package gomem

// HostMemory is not known here.
func HostMemory() (total, available int64) { return Unknown, Unknown }
