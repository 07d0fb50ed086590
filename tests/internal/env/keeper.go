package env

import (
	"context"
	"fmt"
	"os"
	"sync"

	"turnkeeper/internal/cli/shell"
)

// A keeper keeps the database open between the commands that run in the test process. Each new connection loads the
// schema and plans each statement again, which takes several times as long as the commands.
type keeper struct {
	mu   sync.Mutex
	kept map[string]*shell.Keeper // by environment and settings
}

// of returns what keeps the database for commands with an environment and a file of settings, or nil.
func (k *keeper) of(vars map[string]string, settings []byte) *shell.Keeper {
	if k == nil { // the test has a server of its own
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	key := fmt.Sprint(vars, string(settings))
	if k.kept[key] == nil {
		if k.kept == nil {
			k.kept = map[string]*shell.Keeper{}
		}
		k.kept[key] = &shell.Keeper{}
	}
	return k.kept[key]
}

func (k *keeper) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, kept := range k.kept {
		if err := kept.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	k.kept = nil
}
