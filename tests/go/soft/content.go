package soft

import (
	"bytes"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/tack-memory/tack-memory/gomem"
)

// random is bytes that repeat nowhere soon, made once: under the race detector that takes long.
var random = sync.OnceValue(func() []byte {
	content := make([]byte, 1<<23)
	x := uint64(0x9e3779b97f4a7c15)
	for i := 0; i < len(content); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(content[i:], x)
	}
	return content
})

// Noise is a content that repeats nowhere soon, another one for each seed.
func Noise(n int, seed uint32) []byte {
	from := uint64(seed+1) * 0x9e3779b97f4a7c15 % uint64(len(random())-n)
	return bytes.Clone(random()[from:][:n])
}

// Write puts bytes on a device.
func Write(t testing.TB, driver gomem.Driver, address uint64, content []byte) {
	t.Helper()
	host, pointer := Bytes(t, len(content))
	copy(host, content)
	if err := driver.CopyIn(address, pointer, uint64(len(content))); err != nil {
		t.Fatal(err)
	}
	clear(host) // it is no longer needed
}

// Read gets bytes from a device.
func Read(t testing.TB, driver gomem.Driver, address uint64, nbytes int) []byte {
	t.Helper()
	host, pointer := Bytes(t, nbytes)
	if err := driver.CopyOut(pointer, address, uint64(nbytes)); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(host)
}
