package archtest

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the path of this module.
const Module = "turnkeeper"

// rootName is the name of the root package in the two files.
const rootName = "turnkeeper"

// Package is a package of the module with its imports.
type Package struct {
	ImportPath   string
	Dir          string
	GoFiles      []string
	Imports      []string
	TestImports  []string // of test files in the package
	XTestImports []string // of test files in the package with _test in its name
}

// Check returns a fault for each import that arrows.txt or doors.txt does not allow, and for each package
// that is not in arrows.txt.
func Check(packages []Package, order *Order, doors Doors) []string {
	var faults []string
	for _, p := range packages {
		name := nameOf(p.ImportPath)
		if !order.Knows(name) {
			faults = append(faults, fmt.Sprintf("%s has no place: draw its arrows in arrows.txt", name))
			continue
		}
		for _, path := range p.Imports {
			faults = append(faults, fault(name, path, false, order, doors)...)
		}
		for _, list := range [][]string{p.TestImports, p.XTestImports} {
			for _, path := range list {
				faults = append(faults, fault(name, path, true, order, doors)...)
			}
		}
	}
	return faults
}

// fault returns the fault of one import, if any.
func fault(name, path string, inTest bool, order *Order, doors Doors) []string {
	who := name
	if inTest {
		who = "a test of " + name
	}
	if !isOurs(path) {
		if complaint := doors.complaint(name, path, inTest); complaint != "" {
			return []string{fmt.Sprintf("%s imports %s, which %s", who, path, complaint)}
		}
		return nil
	}
	imported := nameOf(path)
	if !inTest && slices.Contains(order.shut, [2]string{name, imported}) {
		return []string{fmt.Sprintf("%s imports %s, which a \"!>\" forbids", who, imported)}
	}
	if order.Above(name, imported) || inTest && (imported == name || order.forTests(imported)) {
		return nil
	}
	return []string{fmt.Sprintf("%s imports %s: no arrow leads there", who, imported)}
}

func isOurs(path string) bool { return path == Module || strings.HasPrefix(path, Module+"/") }

// nameOf returns a package's name in the two files.
func nameOf(path string) string {
	if rest, ok := strings.CutPrefix(path, Module+"/"); ok {
		return rest
	}
	if path == Module {
		return rootName
	}
	return path
}
