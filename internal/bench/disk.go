package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// maxFlushDelay is the maximum of the setting commit_delay.
const maxFlushDelay = 100 * time.Millisecond

// diskSettings returns the settings of a server whose flushes of the log take longer by delay. A commit
// waits for commit_delay before it flushes, so that other commits can join; with commit_siblings 0 it
// waits even if there are none. The log has no images of whole pages, and no checkpoint falls into a figure.
func diskSettings(delay time.Duration) (map[string]string, error) {
	if delay < 0 || delay > maxFlushDelay {
		return nil, fmt.Errorf("invalid flush delay: a flush can be made 0 to %v slower, not %v", maxFlushDelay, delay)
	}
	settings := map[string]string{"checkpoint_timeout": "1h", "max_wal_size": "16GB", "full_page_writes": "off"}
	if delay > 0 {
		settings["commit_delay"], settings["commit_siblings"] = strconv.FormatInt(delay.Microseconds(), 10), "0"
	}
	return settings, nil
}

// flushTime times this number of flushes, each of this number of bytes.
const (
	flushes = 100
	flushed = 8192
)

// flushTime returns the median time of a flush to the disk of dir. It overwrites a page, as Postgres
// does in its log.
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
