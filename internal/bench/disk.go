package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// maxFlushDelay is the most that Postgres lets a flush wait.
const maxFlushDelay = 100 * time.Millisecond

// slowDisk are the settings of a server whose every flush of the log takes so much
// longer. Each commit waits before it flushes, as it does to let others join in; here
// it waits also when there are none.
func slowDisk(delay time.Duration) (map[string]string, error) {
	if delay < 0 || delay > maxFlushDelay {
		return nil, fmt.Errorf("a flush can be made 0 to %v slower, not %v", maxFlushDelay, delay)
	}
	if delay == 0 {
		return nil, nil
	}
	return map[string]string{"commit_delay": strconv.FormatInt(delay.Microseconds(), 10), "commit_siblings": "0"}, nil
}

// flushes is how many flushes are timed, and flushed how many bytes each has.
const (
	flushes = 100
	flushed = 8192
)

// flushTime is the median time of a flush to the disk that has dir, of a page written
// over one that was there, as Postgres writes its log.
func flushTime(dir string) (time.Duration, error) {
	file, err := os.Create(filepath.Join(dir, "flush"))
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	defer func() { _ = file.Close() }()
	var took []time.Duration
	page := make([]byte, flushed)
	for i := range flushes + 1 {
		if _, err := file.WriteAt(page, 0); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := file.Sync(); err != nil {
			return 0, err
		}
		if i > 0 { // the first makes the file longer
			took = append(took, time.Since(began))
		}
	}
	return latencyOf(took).P50, nil
}
