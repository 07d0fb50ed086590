package redact

import "slices"

// automaton finds all occurrences of a set of patterns in one pass (Aho-Corasick). It is immutable. It
// takes about 24 bytes for each byte of the patterns.
type automaton struct {
	first [256]int32 // transitions from state 0, the most frequent state
	nodes []node
}

// A node is a prefix of a pattern. The children of a node form a list.
type node struct {
	child   int32 // first child; 0: none
	sibling int32 // next child of the same parent; 0: none
	fail    int32 // longest proper suffix that is a prefix of a pattern
	depth   int32 // its length
	longest int32 // length of the longest pattern that is a suffix; 0: none
	last    byte  // its last byte
}

var empty = newAutomaton(nil)

func newAutomaton(patterns []string) *automaton {
	slices.Sort(patterns)
	patterns = slices.DeleteFunc(slices.Compact(patterns), func(p string) bool { return len(p) < MinLength })
	a := &automaton{nodes: []node{{}}}
	for _, pattern := range patterns {
		a.insert(pattern)
	}
	a.link()
	return a
}

func (a *automaton) insert(pattern string) {
	state := int32(0)
	for i, b := range []byte(pattern) {
		next := a.childOf(state, b)
		if next == 0 {
			next = int32(len(a.nodes)) //nolint:gosec // settings are small
			a.nodes = append(a.nodes, node{sibling: a.nodes[state].child, depth: int32(i + 1), last: b})
			a.nodes[state].child = next
			if state == 0 {
				a.first[b] = next
			}
		}
		state = next
	}
	a.nodes[state].longest = int32(len(pattern)) //nolint:gosec // settings are small
}

func (a *automaton) childOf(state int32, b byte) int32 {
	if state == 0 {
		return a.first[b]
	}
	child := a.nodes[state].child
	for child != 0 && a.nodes[child].last != b {
		child = a.nodes[child].sibling
	}
	return child
}

// link sets fail and longest, shorter prefixes first.
func (a *automaton) link() {
	queue := []int32{0}
	for len(queue) > 0 {
		state := queue[0]
		queue = queue[1:]
		for child := a.nodes[state].child; child != 0; child = a.nodes[child].sibling {
			n := &a.nodes[child]
			if state != 0 {
				n.fail = a.step(a.nodes[state].fail, n.last)
			}
			n.longest = max(n.longest, a.nodes[n.fail].longest)
			queue = append(queue, child)
		}
	}
}

func (a *automaton) step(state int32, b byte) int32 {
	for {
		if next := a.childOf(state, b); next != 0 || state == 0 {
			return next
		}
		state = a.nodes[state].fail
	}
}
