package tests_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// programs are the packages that are built, once for all tests.
var programs = []string{"../cmd/worker", "../cmd/enqueue", "../cmd/turnctl", "./markerworker", "./faultenqueue", "./rascal", "./toolserver", "../examples/webhook-receiver"}

// binaryDir is the folder of the built programs; empty: none was built yet.
var binaryDir string

var build = sync.OnceValue(func() (err error) {
	if binaryDir, err = os.MkdirTemp("", "turnkeeper-bin-"); err != nil {
		return err
	}
	args := []string{"build", "-buildvcs=false", "-o", binaryDir + "/"}
	if raceDetector {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, programs...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the programs: %w\n%s", err, out)
	}
	return nil
})

func removeBinaries() {
	if binaryDir != "" {
		_ = os.RemoveAll(binaryDir)
	}
	if clientsDir != "" {
		_ = os.RemoveAll(clientsDir)
	}
}

// binary is the path of a built program.
func binary(t testing.TB, name string) string {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binaryDir, name)
}
