// Package procguard keeps what a process holds from the programs it starts, which run as the same
// user: its environment and memory, which have its secrets, and its open files.
//
// It does so on Linux. Elsewhere it does nothing: there, a program of the same user may be able to
// read the environment of a process (ps -E on macOS) or attach a debugger to it, so programs that
// are not trusted need a user of their own. No system keeps a program of root from anything.
package procguard
