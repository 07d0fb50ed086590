// Package archtest checks the imports and sizes of this module's packages.
//
// arrows.txt says which package may import which; doors.txt says which package may import which library.
// A package or library in neither file is an error: a new one must be added on purpose. sizes.txt lists
// the types and packages that may be larger than MaxMethods and MaxExported.
//
// programs/ lists what each program links, with reasons for large dependencies.
package archtest

//go:generate go test . -run TestPrograms -update
