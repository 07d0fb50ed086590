package arguments

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// The validator compares floats and divides them, so it takes 1122334455667788801 for 1122334455667788800, and 19.99
// for no multiple of 0.01. So it never sees the numbers of a schema or of arguments, but a stand-in for each of them,
// which is small enough to be exact. Stand-ins are equal, in order, whole, and multiples of the stand-ins of steps
// (multipleOf) exactly if their numbers are.
//
// A stand-in is half of an integer u = slot * modulus + rest. The numbers of a schema and of arguments have their slots
// in ascending order. The rest is even if the number is whole. Each step has a prime, half of which is its stand-in,
// and which divides the rest if the number is a multiple of the step. The modulus is the product of 2 and these primes.
type exact struct {
	numbers []decimal  // of the schema, ascending and distinct
	steps   []*big.Rat // of the schema, ascending and distinct
	modulus int64
	rests   []int64              // for each prime: a number that is 1 modulo the prime, and 0 modulo the others
	whole   *jsonschema.Resolved // the schema, with stand-ins
	partial *jsonschema.Resolved // accepts any subset of the properties; nil if it does not compile
}

// primes has 2 for whole numbers, and a prime for each of at most eight steps.
var primes = []int64{2, 3, 5, 7, 11, 13, 17, 19, 23}

// Bounds of stand-ins. Between two numbers of a schema there is a slot for each number that arguments can have.
const (
	slotsBetween = MaxBytes
	maxStandIn   = 1 << 50 // far below 1 << 53, so that the quotient of two stand-ins is whole only if it is exact
)

func newExact(root *jsonschema.Schema, keywords map[string]any) (*exact, error) {
	e := &exact{modulus: 2}
	root = root.CloneSchemas()
	nodes, err := numbersOf(root, keywords)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes {
		for _, d := range n.numbers() {
			e.numbers = append(e.numbers, d.decimal())
		}
		if n.step != nil {
			e.steps = append(e.steps, n.step)
		}
	}
	slices.SortFunc(e.numbers, decimal.compare)
	e.numbers = slices.Compact(e.numbers)
	slices.SortFunc(e.steps, (*big.Rat).Cmp)
	e.steps = slices.CompactFunc(e.steps, func(a, b *big.Rat) bool { return a.Cmp(b) == 0 })
	if len(e.steps) >= len(primes) {
		return nil, fmt.Errorf("the schema of the parameters has more than %d different values of multipleOf",
			len(primes)-1)
	}
	for _, prime := range primes[1 : len(e.steps)+1] {
		e.modulus *= prime
	}
	if int64(len(e.numbers)+1) > maxStandIn/slotsBetween/e.modulus {
		return nil, errors.New("the schema of the parameters has too many different numbers; simplify it")
	}
	for _, prime := range primes[:len(e.steps)+1] {
		others, inverse := e.modulus/prime, int64(1)
		for others*inverse%prime != 1 {
			inverse++
		}
		e.rests = append(e.rests, others*inverse)
	}
	for _, n := range nodes {
		e.replace(n)
	}
	e.partial = partialOf(root)
	e.whole, err = root.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("the schema of the parameters does not compile: %w", err)
	}
	return e, nil
}

// A numbered node is a part of a schema with the exact values of its keywords.
type numbered struct {
	*jsonschema.Schema
	bounds   map[**float64]number // of minimum, maximum, exclusiveMinimum and exclusiveMaximum, by their fields
	step     *big.Rat             // multipleOf; nil: none
	enum     []any
	constant any // nil: none, or null
}

// numbers returns the numbers with which the node compares.
func (n numbered) numbers() (all []number) {
	for _, bound := range n.bounds {
		all = append(all, bound)
	}
	collect := func(number number) any {
		all = append(all, number)
		return nil
	}
	mapNumbers(n.enum, collect)
	mapNumbers(n.constant, collect)
	return all
}

// numbersOf returns the parts of a schema, with their numbers from its text.
func numbersOf(root *jsonschema.Schema, keywords map[string]any) (nodes []numbered, err error) {
	c := &refChecker{ids: map[string]*jsonschema.Schema{}}
	c.collect(root, "#")
	for pointer, s := range c.ids {
		if pointer != "#" && !strings.HasPrefix(pointer, "#/") { // another name of the same part
			continue
		}
		text, ok := at(keywords, pointer).(map[string]any)
		if !ok { // true or false
			continue
		}
		n, err := numbersIn(s, text)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// numbersIn returns a part of a schema with its numbers. It refuses a keyword that the part has and its text has not:
// the decoder ignores letter case.
func numbersIn(s *jsonschema.Schema, text map[string]any) (numbered, error) {
	n := numbered{Schema: s, bounds: map[**float64]number{}, constant: text["const"]}
	n.enum, _ = text["enum"].([]any)
	if (n.enum == nil) != (s.Enum == nil) || s.Const != nil && *s.Const != nil && n.constant == nil {
		return n,
			errors.New("the schema of the parameters has enum or const in other letters; write them in lower case")
	}
	for keyword, field := range map[string]**float64{
		"minimum": &s.Minimum, "maximum": &s.Maximum, "exclusiveMinimum": &s.ExclusiveMinimum,
		"exclusiveMaximum": &s.ExclusiveMaximum,
		"multipleOf":       &s.MultipleOf,
	} {
		exact, ok := text[keyword].(number)
		switch {
		case ok != (*field != nil):
			return n, fmt.Errorf("the schema of the parameters has %s in other letters; write it as here", keyword)
		case !ok:
		case keyword == "multipleOf":
			n.step, _ = new(big.Rat).SetString(string(exact))
			if n.step == nil || n.step.Sign() <= 0 {
				return n, fmt.Errorf("the schema of the parameters has multipleOf %s; it must be more than 0", exact)
			}
		default:
			n.bounds[field] = exact
		}
	}
	return n, nil
}

// at returns the part of a JSON value at a pointer that begins with #.
func at(value any, pointer string) any {
	for step := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(pointer, "#"), "/"), "/") {
		if pointer == "#" {
			return value
		}
		step = pointerUnescape.Replace(step)
		switch v := value.(type) {
		case map[string]any:
			value = v[step]
		case []any:
			var i int
			if _, err := fmt.Sscan(step, &i); err != nil || i < 0 || i >= len(v) {
				return nil
			}
			value = v[i]
		default:
			return nil
		}
	}
	return value
}

var pointerUnescape = strings.NewReplacer("~1", "/", "~0", "~")

// replace gives a part of the schema stand-ins for its numbers.
func (e *exact) replace(n numbered) {
	half := func(bound number) *float64 {
		u := float64(e.of(bound, nil)) / 2
		return &u
	}
	for field, bound := range n.bounds {
		*field = half(bound)
	}
	if n.step != nil {
		i, _ := slices.BinarySearchFunc(e.steps, n.step, (*big.Rat).Cmp)
		step := float64(primes[i+1]) / 2
		n.MultipleOf = &step
	}
	standIn := func(n number) any { return shown(e.of(n, nil)) }
	if n.enum != nil {
		n.Enum = mapNumbers(n.enum, standIn).([]any)
	}
	if n.Const != nil {
		constant := mapNumbers(n.constant, standIn)
		n.Const = &constant
	}
}

// of returns the double of a number's stand-in. between has the numbers that the schema has not, with their slots.
func (e *exact) of(n number, between map[number]int64) int64 {
	d := n.decimal()
	slot, ours := between[n]
	if !ours {
		i, _ := slices.BinarySearchFunc(e.numbers, d, decimal.compare)
		slot = int64(i+1) * slotsBetween
	}
	rest := int64(0)
	if !d.whole() {
		rest = e.rests[0]
	}
	for i, step := range e.steps {
		if !multiple(n, step) {
			rest += e.rests[i+1]
		}
	}
	return slot*e.modulus + rest%e.modulus
}

// shown returns half of an integer, as the validator takes it.
func shown(u int64) any {
	if u%2 == 0 {
		return u / 2
	}
	return float64(u) / 2
}

// standIns returns the arguments with stand-ins for their numbers.
func (e *exact) standIns(args map[string]any) map[string]any {
	between := map[number]int64{}
	mapNumbers(args, func(n number) any {
		between[n] = 0
		return nil
	})
	type placed struct {
		number
		decimal
	}
	all := make([]placed, 0, len(between))
	for n := range between {
		all = append(all, placed{n, n.decimal()})
	}
	slices.SortFunc(all, func(a, b placed) int { return a.compare(b.decimal) })
	last, slot := -1, int64(0)
	for _, p := range all {
		i, found := slices.BinarySearchFunc(e.numbers, p.decimal, decimal.compare)
		if found {
			delete(between, p.number)
			continue
		}
		if i != last {
			last, slot = i, int64(i)*slotsBetween
		}
		slot++
		between[p.number] = slot
	}
	return mapNumbers(args, func(n number) any { return shown(e.of(n, between)) }).(map[string]any)
}

// accepts reports whether the schema accepts the arguments.
func (e *exact) accepts(args map[string]any) bool { return e.whole.Validate(e.standIns(args)) == nil }

// refused returns the names of the arguments that the schema refuses, each alone.
func (e *exact) refused(args map[string]any) (names []string) {
	if e.partial == nil {
		return nil
	}
	standIns := e.standIns(args)
	for _, name := range sortedKeys(standIns) {
		if e.partial.Validate(map[string]any{name: standIns[name]}) != nil {
			names = append(names, name)
		}
	}
	return names
}
