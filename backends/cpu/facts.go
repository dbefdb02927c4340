package cpu

// Facts are what a report says of the host's memory. A text is empty, and a number 0, where the system does not tell.
type Facts struct {
	Product              string // the processor's name
	PageBytes            int    // of this process
	KernelPageBytes      int    // of the kernel: not the same in a process that is translated from another processor's instructions
	TransparentHugePages string // "always", "madvise" or "never": which mappings the kernel gives huge pages by itself
	Defrag               string // "always", "defer", "madvise", ...: for which mappings it first makes room for one
	TransparentPageBytes int64  // size of those pages
	HugePages            []HugePages
}

// HugePages are the huge pages of one size, which somebody has set aside.
type HugePages struct {
	PageBytes int64
	Count     int64
	Free      int64
}
