package pgdev

import (
	"context"
	"testing"
)

// SetPlaces changes the download URL, and the folders where root keeps data and downloads, until the test ends.
func SetPlaces(t *testing.T, url, home, cache string) {
	t.Helper()
	oldURL, oldHome, oldCache := repository, systemHome, systemCache
	repository, systemHome, systemCache = url, home, cache
	t.Cleanup(func() { repository, systemHome, systemCache = oldURL, oldHome, oldCache })
}

// HideInstalls limits the search for installed servers to folders until the test ends.
func HideInstalls(t *testing.T, folders ...string) {
	t.Helper()
	t.Setenv("PATH", t.TempDir())
	old := usualFolders
	usualFolders = folders
	t.Cleanup(func() { usualFolders = old })
}

// Choose finds the usable installs, picks one, and returns its folder and major version.
func Choose(ctx context.Context, want int) (string, int, error) {
	a, err := serverAccount(home{}, false)
	if err != nil {
		return "", 0, err
	}
	in, err := choose(findInstalls(ctx, a), want)
	return in.bin, in.major, err
}

// Fetch downloads a major version and returns its folder and major version.
func Fetch(ctx context.Context, major int) (string, int, error) {
	a, err := serverAccount(home{}, false)
	if err != nil {
		return "", 0, err
	}
	in, err := fetch(ctx, a, major)
	return in.bin, in.major, err
}

var Complaint = complaint
