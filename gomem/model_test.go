package gomem_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/tack-memory/tack-memory/gomem/fakedriver"
)

// The model test: long random lists of operations on the core and on an obvious model of it (modelrun_test.go), which says what every buffer
// contains and what the books must show. One worker: everything is compared after each operation. Two to four: contents after each operation, the
// books whenever all are quiet.
//
// A failing list is made short (one worker) and saved; the message says how to run it again:
//
//	go test ./gomem -run TestModel -model.replay FILE
//	go test ./gomem -run TestModel -model.seed SEED
var (
	modelSeed   = flag.Uint64("model.seed", seedFromEnvironment(), "seed of the model test; 0: a new one")
	modelReplay = flag.String("model.replay", "", "a saved list of operations for the model test")
	modelScale  = flag.Int("model.scale", 1, "how many times as many operations")
)

func seedFromEnvironment() uint64 {
	seed, _ := strconv.ParseUint(os.Getenv("GOMEM_MODEL_SEED"), 10, 64)
	return seed
}

// modelCase is one configuration of the device and the operations of each worker.
type modelCase struct {
	Name    string
	Driver  fakedriver.Options
	Budget  int64 // at the beginning; -1: none
	Host    int64 // limit of host copies; -1: none
	Faults  bool  // driver calls fail now and then (one worker only: an error is that worker's)
	Check   bool  // the device verifies its books by itself, too
	Largest uint64
	Seed    uint64
	Workers [][]modelOp
}

// modelOp is one operation. Its arguments are raw random numbers that the worker reduces to what exists at that moment, so that a list
// stays a legal list when parts are taken out.
type modelOp struct {
	Kind string
	A    uint64
	B    uint64
	C    uint64
}

// modelKinds are the operations with their weights.
var modelKinds = []struct {
	kind   string
	weight int
}{
	{"allocate", 16}, {"drop", 8}, {"free", 4}, {"launch", 16}, {"read", 10}, {"write", 10}, {"fill", 6}, {"copy", 6}, {"pointer", 5},
	{"hold", 4}, {"export", 3}, {"release", 8}, {"spill", 4}, {"restore", 3}, {"spillall", 1}, {"restoreall", 1},
	{"budget", 2}, {"resetpeak", 1}, {"open", 3}, {"close", 3}, {"reserve", 2}, {"adopt", 3}, {"disown", 2}, {"receive", 3}, {"makeroom", 1}, {"trim", 1}, {"find", 3},
	{"cancelled", 2}, {"label", 1}, {"report", 1}, {"fault", 4},
}

func randomOps(random *rand.Rand, n int) []modelOp {
	total := 0
	for _, k := range modelKinds {
		total += k.weight
	}
	ops := make([]modelOp, n)
	for i := range ops {
		pick := random.IntN(total)
		for _, k := range modelKinds {
			if pick -= k.weight; pick < 0 {
				ops[i].Kind = k.kind
				break
			}
		}
		ops[i].A, ops[i].B, ops[i].C = random.Uint64(), random.Uint64(), random.Uint64()
	}
	return ops
}

const kib = 1 << 10

// modelConfigurations are what the lists run under: each feature of a device alone, and the common ones together.
func modelConfigurations() []modelCase {
	return []modelCase{
		{Name: "unlimited", Budget: -1, Host: -1},
		{Name: "budget", Budget: 40 * kib, Host: -1},
		{Name: "budget, addresses never used again", Driver: fakedriver.Options{Quarantine: true}, Budget: 40 * kib, Host: -1},
		{Name: "small device", Driver: fakedriver.Options{Capacity: 40 * kib}, Budget: -1, Host: -1},
		{Name: "small device, pool, deferred frees", Driver: fakedriver.Options{Capacity: 48 * kib, Pool: true, DeferFrees: true}, Budget: -1, Host: -1},
		{Name: "small asynchronous device with a budget", Driver: fakedriver.Options{Capacity: 64 * kib, Asynchronous: true, DeferFrees: true}, Budget: 32 * kib, Host: -1},
		{Name: "little host memory", Driver: fakedriver.Options{Capacity: 40 * kib}, Budget: 30 * kib, Host: 20 * kib},
		{Name: "failing calls", Driver: fakedriver.Options{Capacity: 48 * kib, Pool: true}, Budget: 40 * kib, Host: -1, Faults: true},
	}
}

// modelWorkers and operations of each: over 100,000 in all.
var modelSizes = []struct{ workers, operations int }{{1, 5000}, {2, 2000}, {4, 1200}}

func TestModel(t *testing.T) {
	if *modelReplay != "" {
		replayModel(t, *modelReplay)
		return
	}
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d; run it again with -model.seed or GOMEM_MODEL_SEED", seed)
	operations := 0
	for n, configuration := range modelConfigurations() {
		for _, size := range modelSizes {
			c := configuration
			c.Seed = seed + uint64(n)
			c.Check = size.workers > 1
			c.Faults = c.Faults && size.workers == 1
			random := rand.New(rand.NewPCG(c.Seed, uint64(size.workers)))
			for range size.workers {
				c.Workers = append(c.Workers, randomOps(random, size.operations**modelScale))
				operations += size.operations * *modelScale
			}
			t.Run(fmt.Sprintf("%s/%d workers", c.Name, size.workers), func(t *testing.T) {
				if err := runModel(c); err != nil {
					reportModel(t, c, err)
				}
			})
		}
	}
	t.Logf("%d operations", operations)
}

// reportModel makes a failing case short, saves it, and fails the test.
func reportModel(t *testing.T, c modelCase, err error) {
	t.Helper()
	if len(c.Workers) == 1 {
		c, err = shrinkModel(c, err, time.Now().Add(20*time.Second))
	}
	text, jsonErr := json.MarshalIndent(c, "", " ")
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	file, fileErr := os.CreateTemp("", "model-*.json")
	if fileErr != nil {
		t.Fatal(fileErr)
	}
	defer file.Close()
	if _, fileErr = file.Write(text); fileErr != nil {
		t.Fatal(fileErr)
	}
	n := 0
	for _, ops := range c.Workers {
		n += len(ops)
	}
	t.Fatalf("%s: %v\n%d operations, saved in %s; run them again with -model.replay", c.Name, err, n, file.Name())
}

func replayModel(t *testing.T, name string) {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var c modelCase
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	for _, ops := range c.Workers {
		if len(ops) <= 60 {
			for i, op := range ops {
				t.Logf("%3d %s %d %d %d", i, op.Kind, op.A, op.B, op.C)
			}
		}
	}
	if err := runModel(c); err != nil {
		t.Fatal(err)
	}
}

// shrinkModel takes parts out of a failing list as long as it still fails: halves, quarters, ... single operations.
func shrinkModel(c modelCase, err error, until time.Time) (modelCase, error) {
	ops := c.Workers[0]
	for part := (len(ops) + 1) / 2; part >= 1; part /= 2 {
		for from := 0; from < len(ops); {
			if time.Now().After(until) {
				return c, err
			}
			fewer := slices.Delete(slices.Clone(ops), from, min(from+part, len(ops)))
			shorter := c
			shorter.Workers = [][]modelOp{fewer}
			if failure := runModel(shorter); failure != nil {
				ops, c, err = fewer, shorter, failure
			} else {
				from += part
			}
		}
	}
	return c, err
}

// The model test finds faults: a device that returns wrong bytes now and then is caught.
func TestModelNoticesWrongContents(t *testing.T) {
	c := modelConfigurations()[1]
	c.Seed = 1
	c.Workers = [][]modelOp{randomOps(rand.New(rand.NewPCG(1, 1)), 2000)}
	c.Driver.CorruptEvery = 50
	err := runModel(c)
	if err == nil {
		t.Fatal("50 wrong copies went unnoticed")
	}
	short, _ := shrinkModel(c, err, time.Now().Add(3*time.Second))
	if len(short.Workers[0]) >= 2000 {
		t.Fatal("the failing list was not made shorter")
	}
}
