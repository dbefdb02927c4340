//go:build !darwin

package metal

// Load says why there is no Metal here. It looks for nothing and loads nothing.
func Load() (*Library, error) { return nil, ErrNotMacOS }
