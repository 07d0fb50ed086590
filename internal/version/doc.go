// Package version tells which version of Turnkeeper a program was built from.
package version
