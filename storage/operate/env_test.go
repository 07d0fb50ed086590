package operate_test

import (
	"testing"

	"turnkeeper/storage/storagetest"
)

// An env is a database with the agents clerk and desk.
type env struct{ *storagetest.DB }

func newEnv(t testing.TB) *env {
	t.Helper()
	return &env{storagetest.WithAgents(t)}
}

// newFresh is newEnv with a database and a store that no other test had.
func newFresh(t testing.TB) *env {
	t.Helper()
	return &env{storagetest.NewWithAgents(t)}
}
