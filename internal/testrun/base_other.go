//go:build !linux

package testrun

import "os"

func base() string { return os.TempDir() }
