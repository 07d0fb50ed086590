package pgdev

import (
	"context"
	"testing"
)

// SetPlaces sends downloads and data that root keeps elsewhere to other
// places for the length of a test.
func SetPlaces(t *testing.T, url, home, cache string) {
	t.Helper()
	oldURL, oldHome, oldCache := repository, systemHome, systemCache
	repository, systemHome, systemCache = url, home, cache
	t.Cleanup(func() { repository, systemHome, systemCache = oldURL, oldHome, oldCache })
}

// HideInstalls makes the machine look as if only these folders might hold
// servers, for the length of a test.
func HideInstalls(t *testing.T, folders ...string) {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
	old := usualFolders
	usualFolders = folders
	t.Cleanup(func() { usualFolders = old })
}

// Choose finds the installs that this process could use and picks one: its
// folder and version.
func Choose(ctx context.Context, want int) (string, int, error) {
	a, err := serverAccount(home{}, false)
	if err != nil {
		return "", 0, err
	}
	in, err := choose(findInstalls(ctx, a), want)
	return in.bin, in.major, err
}

// Fetch downloads a version: its folder and version.
func Fetch(ctx context.Context, major int) (string, int, error) {
	a, err := serverAccount(home{}, false)
	if err != nil {
		return "", 0, err
	}
	in, err := fetch(ctx, a, major)
	return in.bin, in.major, err
}

var Complaint = complaint
