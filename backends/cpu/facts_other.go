//go:build !linux && !darwin

package cpu

import "os"

// ReadFacts asks the system, which tells only what every system does.
func ReadFacts() Facts { return Facts{PageBytes: os.Getpagesize()} }
