package testrun

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// killAll kills every process that belongs to the folder, until there is none. Postgres gets a
// moment to remove its shared memory, which outlives a kill. Guards of test processes that belong to
// the folder, as those of make test belong to its server's, get time to clean up.
func killAll(root string) {
	const patience, pause = 30 * time.Second, 20 * time.Millisecond
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < patience; <-tick.C {
		left := processesOf(root)
		if len(left) == 0 {
			return
		}
		early := time.Since(start) < patience/3
		for _, p := range left {
			switch {
			case p.guard && early:
			case p.postgres && early:
				_ = syscall.Kill(p.pid, syscall.SIGQUIT) // an immediate stop
			default:
				_ = syscall.Kill(p.pid, syscall.SIGKILL)
			}
		}
	}
}

// A process is one that belongs to the folder of a test run.
type process struct {
	pid      int
	postgres bool
	guard    bool
}

// processesOf finds the processes of a folder, without this one.
func processesOf(root string) []process {
	entries, err := os.ReadDir("/proc")
	if err != nil || !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "self" }) {
		return listedProcesses(root)
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		cwd, _ := os.Readlink(filepath.Join(dir, "cwd"))
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if mentions(root, cwd, exe, string(args), string(env)) {
			found = append(found, process{pid, strings.HasSuffix(exe, "/postgres"), strings.HasPrefix(string(env), guardVariable+"=")})
		}
	}
	return found
}

// listedProcesses is processesOf for systems without /proc: it sees arguments only.
func listedProcesses(root string) (found []process) {
	out, err := exec.Command("ps", "-axwwo", "pid=,command=").Output()
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(out)) {
		id, command, _ := strings.Cut(strings.TrimSpace(line), " ")
		if pid, err := strconv.Atoi(id); err == nil && pid != os.Getpid() && mentions(root, command) {
			found = append(found, process{pid: pid, postgres: strings.Contains(command, "postgres")})
		}
	}
	return found
}

// mentions says whether one of the texts holds the folder's path, or a path in it.
func mentions(root string, texts ...string) bool {
	for _, text := range texts {
		for rest := text; ; {
			_, after, found := strings.Cut(rest, root)
			if !found {
				break
			}
			if after == "" || strings.ContainsAny(after[:1], "/\x00 :\"'\n") {
				return true
			}
			rest = after
		}
	}
	return false
}
