package mac

import "golang.org/x/sys/unix"

// thread is the thread that the caller runs on.
func thread() int { return unix.Gettid() }
