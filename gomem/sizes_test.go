package gomem

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSizeText(t *testing.T) {
	for bytes, text := range map[uint64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 24 << 20: "24 MiB", 31560704: "30.1 MiB", 1<<30 - 1: "1 GiB",
		100<<20 + 1: "100 MiB", 999 << 20: "999 MiB", 1000 << 20: "0.98 GiB", 1567000000: "1.46 GiB", 1 << 62: "4096 PiB",
	} {
		assert.Equal(t, text, SizeText(bytes))
	}
}
