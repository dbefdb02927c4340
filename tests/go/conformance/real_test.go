package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tack-memory/tack-memory/backends/cuda"
	"github.com/tack-memory/tack-memory/backends/dl"
	"github.com/tack-memory/tack-memory/backends/hip"
	"github.com/tack-memory/tack-memory/backends/levelzero"
	"github.com/tack-memory/tack-memory/tests/go/soft"
)

// realVariable names devices of the vendors' own libraries, separated by commas: "cuda:0,hip:0".
const realVariable = "TACK_MEMORY_TEST_DEVICES"

// realDevice is one of them. Its library is looked for as the product does, and is loaded once more where two devices are of one kind.
type realDevice struct {
	name    string
	ordinal int
	file    string
	library library
}

// realKinds are the kinds of device whose memory can be spilled.
var realKinds = map[string]struct {
	vendor     *vendor
	candidates func() []dl.Candidate
}{
	"cuda":       {&cudaVendor, cuda.Candidates},
	"hip":        {&hipVendor, hip.Candidates},
	"level_zero": {&levelZeroVendor, levelzero.Candidates},
}

// onReal is the tests that need no software driver to steer. What they leave out: a device that is really full (a budget stands in for it), calls
// that fail, devices that are slow or late, and what the driver itself counts.
var onReal = []struct {
	name string
	test func(t *testing.T)
}{
	{"Contents", TestContents},
	{"CopiesAreCompleteAtReturn", TestCopiesAreCompleteAtReturn},
	{"CopyWithin", TestCopyWithin},
	{"Fill", TestFill},
	{"TooLarge", TestTooLarge},
	{"AskingMakesNoContext", TestAskingMakesNoContext},
	{"ClosedDriver", TestClosedDriver},
	{"CanFree", TestCanFree},
	{"FreeOfWhatIsNoBlock", TestFreeOfWhatIsNoBlock},
	{"NoAllocationOnTheHotPath", TestNoAllocationOnTheHotPath},
	{"TheThreadIsLeftAsItWas", TestTheThreadIsLeftAsItWas},
	{"FreesAreInOrder", TestFreesAreInOrder},
	{"TheHostsStreamMayEndAfterTheAdoption", TestTheHostsStreamMayEndAfterTheAdoption},
	{"FreedMemoryComesBackWithoutAnAllocation", TestFreedMemoryComesBackWithoutAnAllocation},
	{"OnlyWholeBlocksAreAdopted", TestOnlyWholeBlocksAreAdopted},
	{"MemoryOfAPoolIsAdopted", TestMemoryOfAPoolIsAdopted},
	{"MemoryGoesBackToTheHost", TestMemoryGoesBackToTheHost},
	{"Join", TestJoin},
	{"HostsStream", TestHostsStream},
	{"SpillHasTheLaunchsResult", TestSpillHasTheLaunchsResult},
	{"LadderCachesGoFirst", TestLadderCachesGoFirst},
	{"LadderSpillsWhatIsNeeded", TestLadderSpillsWhatIsNeeded},
	{"MemoryThatTheHostTakes", TestMemoryThatTheHostTakes},
	{"BooksAgreeWithTheDevice", TestBooksAgreeWithTheDevice},
	{"ZeroSize", TestZeroSize},
	{"Storm", TestStorm},
}

// TestReal runs them on each device that the environment names.
func TestReal(t *testing.T) {
	names, set := os.LookupEnv(realVariable)
	if !set {
		t.Skipf("%s names no devices of the vendors' own libraries: nothing is run on a real device (make test-gpu names those that are there)", realVariable)
	}
	ran := 0
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			device := openReal(t, name)
			defer func() { present = flavours }()
			present = []flavour{device}
			for _, c := range onReal {
				t.Run(c.name, c.test)
			}
		})
	}
	if ran == 0 {
		t.Fatalf("%s=%q names no device", realVariable, names)
	}
}

// openReal finds the device's library; a device that was named and cannot be had is a failure.
func openReal(t *testing.T, name string) flavour {
	t.Helper()
	kind, number, _ := strings.Cut(name, ":")
	of, known := realKinds[kind]
	ordinal, err := strconv.Atoi(number)
	if !known || err != nil || ordinal < 0 {
		t.Fatalf("%s: %q is no device like cuda:0, hip:0 or level_zero:0", realVariable, name)
	}
	found, err := of.vendor.load(of.candidates())
	require.NoError(t, err)
	count, err := found.Count()
	require.NoError(t, err)
	if ordinal >= count {
		t.Fatalf("%s: there is no %s; %s has %d devices", realVariable, name, found.Path(), count)
	}
	return flavour{name: "real", vendor: of.vendor, real: &realDevice{name, ordinal, found.Path(), found}}
}

// TestRealRuns runs some of TestReal in a process of its own over copies of the software drivers, loaded as a vendor's own library is: what nobody has a
// device for must not stop to work unseen. And who names a device that cannot be had, or none, must not be told that all is well.
func TestRealRuns(t *testing.T) {
	const some = "^TestReal$/./^(Contents|TooLarge|CanFree|Join|HostsStream|LadderSpillsWhatIsNeeded)$"
	environment := append(os.Environ(), cuda.LibraryVariable+"="+soft.Fresh(t, soft.CUDA), hip.LibraryVariable+"="+soft.Fresh(t, soft.HIP),
		levelzero.LibraryVariable+"="+soft.Fresh(t, soft.LevelZero))
	for devices, want := range map[string]string{
		"cuda:0,hip:1,level_zero:0": "--- PASS: TestReal/level_zero:0/HostsStream/real",
		"":                          "names no device",
		" , ":                       "names no device",
		"sim:0":                     "is no device like cuda:0",
		"cuda":                      "is no device like cuda:0",
		"cuda:0,hip:2":              "there is no hip:2",
	} {
		t.Run(fmt.Sprintf("%q", devices), func(t *testing.T) {
			command := exec.Command(os.Args[0], "-test.run", some, "-test.v", "-test.count=1")
			command.Env = append(environment, realVariable+"="+devices)
			output, err := command.CombinedOutput()
			assert.Equal(t, strings.HasPrefix(want, "---"), err == nil, "%v\n%s", err, output)
			assert.Contains(t, string(output), want)
		})
	}
}
