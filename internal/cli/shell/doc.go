// Package shell is what all programs share: the command tree, flags of settings, exit codes, errors, output as text
// or JSON, completion, signals, and the database that a command works with. A Program is a value; what belongs to the
// operating system comes to it in an Environment, so that a test runs it with buffers.
package shell
