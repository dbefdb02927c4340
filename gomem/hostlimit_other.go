//go:build !linux

package gomem

// availableMemory returns a function that cannot tell how much host memory is left: the default limit is then none. (Devices whose memory
// is the host's own, as on macOS, do not spill.)
func availableMemory() func() (bytes int64, known bool) {
	return func() (int64, bool) { return 0, false }
}
