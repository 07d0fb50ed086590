// Package cli holds the tests that run the three programs, each with buffers in place of the operating system. The
// programs are its packages enqueue, turnctl and worker, over what they share: shell, term and follow.
package cli
