package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/seed-1cfd9858/relay/internal/sandbox"
)

// figure is a number that may be unknown: null in JSON.
type figure float64

func unknown() figure { return figure(math.NaN()) }

func (f figure) known() bool { return !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) }

// MarshalJSON rounds to what can be measured.
func (f figure) MarshalJSON() ([]byte, error) {
	if !f.known() {
		return []byte("null"), nil
	}
	return json.Marshal(math.Round(float64(f)*1000) / 1000)
}

// text formats the figure, or says that it is unknown.
func (f figure) text(format string) string {
	if !f.known() {
		return "not measured"
	}
	return fmt.Sprintf(format, float64(f))
}

// cpuOf is the CPU time, in seconds, that a running process has used. The scheduler's own account has nanoseconds; the usual
// one has ticks of 10 ms, too coarse for a relay at rest.
func cpuOf(pid int) (figure, error) {
	paths, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/schedstat") // the pattern is sound
	var sum int64
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // this thread has just ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += ns
	}
	if sum > 0 {
		return figure(float64(sum) / 1e9), nil
	}
	u, err := sandbox.UsageOf(pid)
	return figure(u.CPU.Seconds()), err
}
