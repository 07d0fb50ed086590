// Package procguard hides a process's environment, memory and open files from the programs that it
// starts, which run as the same user.
//
// It works on Linux only. On other systems a program of the same user may read the environment of a
// process (ps -E on macOS) or attach a debugger, so untrusted programs need a separate user. Nothing is
// hidden from a program of root.
package procguard
