// Package version returns the version and source commit of a program.
package version
