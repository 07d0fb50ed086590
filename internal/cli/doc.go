// Package cli holds the tests that run the three programs with buffers in place of the operating system. The programs
// are in the packages enqueue, turnctl and worker; they share the packages shell, term and follow.
package cli
