package gomem

import (
	"bytes"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// availableMemory returns a function that finds how much memory this process could still take: the least of what the kernel estimates as
// available (MemAvailable) and of what each control group above the process leaves.
func availableMemory() func() (bytes int64, known bool) { return processMemory().available }

// processMemory is this process's. Where it is in the tree of groups is looked up once.
var processMemory = sync.OnceValue(func() *hostMemory {
	h := &hostMemory{root: "/"}
	h.findGroups()
	return h
})

// hostMemory reads the kernel's files. Its root is "/" except in tests.
type hostMemory struct {
	root   string
	groups []memoryGroup
}

// memoryGroup is one control group that the process is in, with the files that its version of the interface has.
type memoryGroup struct {
	directory string
	limits    []string // file names; the lowest value counts
	usage     string   // file name: bytes charged to the group, page cache included
	cache     string   // key in memory.stat: page cache that the kernel takes back first
}

func (h *hostMemory) available() (available int64, known bool) {
	if kib, found := h.keyed("proc/meminfo", "MemAvailable:"); found {
		available, known = kib<<10, true
	}
	for _, group := range h.groups {
		if left, limited := h.left(group); limited && (!known || left < available) {
			available, known = left, true
		}
	}
	return available, known
}

// left is what a group can still take. It reports false for a group without a limit, or one that cannot be read.
func (h *hostMemory) left(group memoryGroup) (left int64, limited bool) {
	// Version 1 has no word for "no limit"; it shows the highest number of pages as bytes.
	const unlimited = 1 << 60
	limit := int64(unlimited)
	for _, name := range group.limits {
		if value, found := h.number(path.Join(group.directory, name)); found { // "max" is not a number
			limit = min(limit, value)
		}
	}
	if limit >= unlimited {
		return 0, false
	}
	usage, found := h.number(path.Join(group.directory, group.usage))
	if !found {
		return 0, false
	}
	cache, _ := h.keyed(path.Join(group.directory, "memory.stat"), group.cache)
	return max(0, min(limit, limit-usage+cache)), true
}

// findGroups looks up the groups with a memory controller that the process is in, from its own up to the top of what is mounted.
func (h *hostMemory) findGroups() {
	paths := h.groupPaths()
	for _, m := range h.groupMounts() {
		own, member := paths[m.version]
		if !member {
			continue
		}
		// A container may see only a part of the tree, or see paths from outside of it ("/../x"): then the mount point is its own group.
		inside := "/"
		if m.shown == "/" {
			inside = own
		} else if rest, below := strings.CutPrefix(own, m.shown); below && (rest == "" || rest[0] == '/') {
			inside = rest
		}
		inside = path.Clean("/" + inside)
		if strings.HasPrefix(own, "/..") || !h.isDirectory(path.Join(m.point, inside)) {
			inside = "/"
		}
		for {
			group := m.version.files()
			group.directory = path.Join(m.point, inside)
			h.groups = append(h.groups, group)
			if inside == "/" {
				break
			}
			inside = path.Dir(inside)
		}
	}
}

// groupVersion is the version of the control group interface. Both may be mounted; the memory controller is in one of them.
type groupVersion int

const (
	groupV1 groupVersion = 1
	groupV2 groupVersion = 2
)

func (v groupVersion) files() memoryGroup {
	if v == groupV1 {
		return memoryGroup{limits: []string{"memory.limit_in_bytes"}, usage: "memory.usage_in_bytes", cache: "total_inactive_file"}
	}
	// Above memory.high the kernel slows the process down until it hardly runs.
	return memoryGroup{limits: []string{"memory.max", "memory.high"}, usage: "memory.current", cache: "inactive_file"}
}

// groupPaths reads which groups the process is in: lines "4:memory:/a/b" (version 1) and "0::/a/b" (version 2).
func (h *hostMemory) groupPaths() map[groupVersion]string {
	paths := make(map[groupVersion]string)
	for line := range strings.Lines(h.text("proc/self/cgroup")) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) != 3 {
			continue
		}
		if fields[0] == "0" && fields[1] == "" {
			paths[groupV2] = fields[2]
		} else if slices.Contains(strings.Split(fields[1], ","), "memory") {
			paths[groupV1] = fields[2]
		}
	}
	return paths
}

type groupMount struct {
	version groupVersion
	shown   string // which part of the tree of groups is mounted
	point   string // where
}

// groupMounts reads where the trees of groups with a memory controller are mounted. Lines of mountinfo:
//
//	36 35 98:0 /shown /point rw,noatime shared:1 - type source options
func (h *hostMemory) groupMounts() (mounts []groupMount) {
	for line := range strings.Lines(h.text("proc/self/mountinfo")) {
		before, after, complete := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		where, kind := strings.Fields(before), strings.Fields(after)
		if !complete || len(where) < 5 || len(kind) < 1 {
			continue
		}
		m := groupMount{shown: unescapeMount(where[3]), point: unescapeMount(where[4])}
		switch {
		case kind[0] == "cgroup2":
			m.version = groupV2
		case kind[0] == "cgroup" && len(kind) >= 3 && slices.Contains(strings.Split(kind[2], ","), "memory"):
			m.version = groupV1
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// unescapeMount undoes the octal escapes of mountinfo: space, tab, newline and backslash.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func (h *hostMemory) text(name string) string {
	content, err := os.ReadFile(filepath.Join(h.root, name))
	if err != nil {
		return "" // not there, or not for us: whoever asked has other sources
	}
	return string(content)
}

func (h *hostMemory) isDirectory(name string) bool {
	info, err := os.Stat(filepath.Join(h.root, name))
	return err == nil && info.IsDir()
}

// number reads a file that has one number.
func (h *hostMemory) number(name string) (value int64, found bool) {
	value, err := strconv.ParseInt(strings.TrimSpace(h.text(name)), 10, 64)
	return value, err == nil
}

// keyed reads a number from a file of lines "key number ...".
func (h *hostMemory) keyed(name, key string) (value int64, found bool) {
	content, err := os.ReadFile(filepath.Join(h.root, name))
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(content) {
		if fields := bytes.Fields(line); len(fields) >= 2 && string(fields[0]) == key {
			value, err := strconv.ParseInt(string(fields[1]), 10, 64)
			return value, err == nil
		}
	}
	return 0, false
}
