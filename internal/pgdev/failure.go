package pgdev

import (
	"fmt"
	"io"
	"os"
	"strings"
)

// failure returns an error about the server with its last error message and the path of its log. cause may
// be nil.
func (l *launch) failure(what string, cause error) error {
	why := complaint(l.written())
	if why != "" {
		why = ": " + why
	}
	text := fmt.Sprintf("the private Postgres in %s %s%s (its log is %s)", l.home.dir, what, why, l.home.log())
	if cause == nil {
		return fmt.Errorf("%s", text)
	}
	return fmt.Errorf("%s: %w", text, cause)
}

// noteLog records the length of the log, so that failure ignores older messages.
func (l *launch) noteLog() {
	if info, err := os.Stat(l.home.log()); err == nil {
		l.logged = info.Size()
	}
}

// openLog opens the log for appending, after rotating a long one.
func (l *launch) openLog() (*os.File, error) {
	const longest = 16 << 20
	path := l.home.log()
	if l.logged > longest && os.Rename(path, path+".old") == nil {
		l.logged = 0
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cannot open the log of the private Postgres: %w", err)
	}
	return file, nil
}

// written returns the end of the server's log since this launch.
func (l *launch) written() string {
	const limit = 64 << 10
	file, err := os.Open(l.home.log())
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return ""
	}
	from := max(l.logged, info.Size()-limit)
	text, err := io.ReadAll(io.NewSectionReader(file, from, info.Size()-from))
	if err != nil {
		return ""
	}
	return string(text)
}

// memoryStillHeld reports whether the start failed because processes of a killed server have not ended
// yet.
func (l *launch) memoryStillHeld() bool {
	return strings.Contains(l.written(), "pre-existing shared memory block")
}

// complaint returns the last error in a log, with the hint that follows it.
func complaint(log string) string {
	var found string
	for line := range strings.Lines(log) {
		if strings.Contains(line, "the database system is ") {
			continue // an answer to an early connection
		}
		for _, mark := range []string{"FATAL:", "PANIC:", "initdb: error:", "postgres: "} {
			if _, said, ok := strings.Cut(line, mark); ok {
				found = strings.TrimSpace(said)
				break
			}
		}
		if _, hint, ok := strings.Cut(line, "HINT:"); ok && found != "" {
			found += " " + strings.TrimSpace(hint)
		}
	}
	return found
}
