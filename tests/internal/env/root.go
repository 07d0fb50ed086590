package env

import (
	"os"
	"path/filepath"
	"sync"
)

// root is the folder of go.mod, above the package under test.
var root = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			panic("no go.mod above the tests")
		}
		dir = parent
	}
})

// Path returns the absolute path of a file or folder of the module, which is
// named by its path under the module's root.
func Path(name string) string { return filepath.Join(root(), name) }
