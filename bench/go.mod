module github.com/tack-memory/tack-memory/bench

go 1.26.0

require github.com/tack-memory/tack-memory v0.0.0

require golang.org/x/sys v0.49.0 // indirect

replace github.com/tack-memory/tack-memory => ../
