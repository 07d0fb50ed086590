//go:build !linux

package procguard

// Protect does nothing on this system.
func Protect() error { return nil }
