package gomem

import (
	"fmt"
	"strconv"
)

// SizeText writes bytes for people as the Python package does, in IEC units with three digits: "512 B", "24 MiB", "1.46 GiB".
func SizeText(bytes uint64) string {
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	units, value := []string{"KiB", "MiB", "GiB", "TiB", "PiB"}, float64(bytes)/1024
	for value >= 999.5 && len(units) > 1 {
		value /= 1024
		units = units[1:]
	}
	digits := 0
	switch {
	case value < 9.995:
		digits = 2
	case value < 99.95:
		digits = 1
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'f', digits, 64), 64) // drops zeros at the end
	return strconv.FormatFloat(rounded, 'f', -1, 64) + " " + units[0]
}
