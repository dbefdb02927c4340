// Command perbuffer says how many bytes of memory one live buffer costs on our side: its record, its place in the registry, and whatever Go keeps
// for it. Python's object comes on top. It prints one line of JSON.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/tack-memory/tack-memory/gomem"
)

func main() {
	log.SetFlags(0)
	buffers := flag.Int("buffers", 1_000_000, "live buffers")
	flag.Parse()

	device, err := gomem.NewDevice(&nowhere{}, gomem.Options{Movable: true})
	if err != nil {
		log.Fatal(err)
	}
	if err := oneOfEach(device); err != nil { // what exists once must not count
		log.Fatal(err)
	}
	residentBefore, heapBefore := resident(), heap()
	began := time.Now()
	for range *buffers {
		if _, err := device.Allocate(4096, gomem.AllocateOptions{}); err != nil {
			log.Fatal(err)
		}
	}
	took := time.Since(began)
	n := float64(*buffers)
	residentOne, heapOne := float64(resident()-residentBefore)/n, float64(heap()-heapBefore)/n
	runtime.KeepAlive(device)
	if err := json.NewEncoder(os.Stdout).Encode(map[string]float64{"buffers": n, "resident": residentOne, "heap": heapOne, "nanoseconds": float64(took.Nanoseconds()) / n}); err != nil {
		log.Fatal(err)
	}
}

func oneOfEach(device *gomem.Device) error {
	index, err := device.Allocate(4096, gomem.AllocateOptions{})
	if err != nil {
		return err
	}
	if freed, err := device.Spill(index, gomem.Wait{}); err != nil || freed == 0 {
		return fmt.Errorf("spilled %d: %w", freed, err)
	}
	device.Drop(index)
	return nil
}

// heap is what Go's live objects take, after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// resident is the memory of the process that is in use, bytes; what the collector found free is given back first.
func resident() int64 {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		log.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
