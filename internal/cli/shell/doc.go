// Package shell is shared by all programs: the command tree, flags for settings, exit codes, errors, output as text
// or JSON, completion, signals, and opening the database. A Program is a value; an Environment stands for the operating
// system, so tests run programs with buffers.
package shell
