package gomem

import "path"

// HostMemory is how much host memory the process may use in all, and how much it could still take: the machine's, or what the tightest of
// the control groups above the process allows. Unknown where the kernel does not tell.
func HostMemory() (total, available int64) {
	h := processMemory()
	total, available = Unknown, Unknown
	if bytes, known := h.total(); known {
		total = bytes
	}
	if bytes, known := h.available(); known {
		available = bytes
	}
	return total, available
}

// total is the least of the machine's memory and of the groups' limits.
func (h *hostMemory) total() (total int64, known bool) {
	if kib, found := h.keyed("proc/meminfo", "MemTotal:"); found {
		total, known = kib<<10, true
	}
	for _, group := range h.groups {
		for _, name := range group.limits {
			if limit, found := h.number(path.Join(group.directory, name)); found && known {
				total = min(total, limit)
			}
		}
	}
	return total, known
}
