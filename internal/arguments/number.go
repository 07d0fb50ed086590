package arguments

import (
	"cmp"
	"strconv"
	"strings"
)

// A number is a JSON number in canonical form.
type number string

// Limits of a number's literal. Within them no float and no Postgres numeric
// overflows.
const (
	maxNumberChars  = 100
	maxNumberDigits = 80
)

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// number reads a JSON number.
func (p *parser) number() (any, error) {
	start := p.at
	p.accept("-")
	whole := p.digits()
	fraction, exponent := "", ""
	bad := whole == "" || len(whole) > 1 && whole[0] == '0'
	if p.accept(".") {
		fraction = p.digits()
		bad = bad || fraction == ""
	}
	if p.accept("eE") {
		mark := p.at
		p.accept("+-")
		bad = p.digits() == "" || bad
		exponent = p.text[mark:p.at]
	}
	literal := p.text[start:p.at]
	if bad {
		return nil, p.errorf("%q is not a JSON number", clip(literal, maxKeyChars))
	}
	if len(literal) > maxNumberChars {
		return nil, p.errorf("a number is %d characters long; at most %d are allowed", len(literal), maxNumberChars)
	}
	n, ok := canonicalNumber(literal[0] == '-', whole, fraction, exponent)
	if !ok {
		return nil, p.errorf("the number %s is too large, too small or too exact", literal)
	}
	return n, nil
}

// accept skips the next byte if it is one of the given ones, and reports
// whether it did.
func (p *parser) accept(any string) bool {
	if p.at < len(p.text) && strings.IndexByte(any, p.text[p.at]) >= 0 {
		p.at++
		return true
	}
	return false
}

func (p *parser) digits() string {
	start := p.at
	for p.at < len(p.text) && isDigit(p.text[p.at]) {
		p.at++
	}
	return p.text[start:p.at]
}

// canonicalNumber returns the canonical form of a number. ok is false if the number
// is out of bounds.
func canonicalNumber(negative bool, whole, fraction, exponent string) (n number, ok bool) {
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0", true
	}
	point := 0 // position of the decimal point in digits; may lie outside of them
	if exponent != "" {
		var err error
		if point, err = strconv.Atoi(exponent); err != nil {
			return "", false
		}
	}
	point += len(whole) - (len(whole+fraction) - len(digits))
	digits = strings.TrimRight(digits, "0")
	if len(digits) > maxNumberDigits || point < -306 || point > 309 {
		return "", false
	}
	sign := ""
	if negative {
		sign = "-"
	}
	literal := sign + plainNumber(digits, point)
	if len(literal) > maxNumberChars {
		literal = sign + scientificNumber(digits, point)
	}
	_, err := strconv.ParseFloat(literal, 64)
	return number(literal), err == nil
}

func plainNumber(digits string, point int) string {
	switch {
	case point <= 0:
		return "0." + strings.Repeat("0", -point) + digits
	case point >= len(digits):
		return digits + strings.Repeat("0", point-len(digits))
	}
	return digits[:point] + "." + digits[point:]
}

func scientificNumber(digits string, point int) string {
	mantissa := digits[:1]
	if len(digits) > 1 {
		mantissa += "." + digits[1:]
	}
	return mantissa + "e" + strconv.Itoa(point-1)
}

// A decimal is a number taken apart. Its value is 0.DIGITS times ten to the power of point.
type decimal struct {
	negative bool
	digits   string // without zeros at either end; empty: 0
	point    int
}

func (n number) decimal() (d decimal) {
	text := string(n)
	text, d.negative = strings.CutPrefix(text, "-")
	text, exponent, _ := strings.Cut(text, "e")
	whole, fraction, _ := strings.Cut(text, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return decimal{}
	}
	shift, _ := strconv.Atoi(exponent) // "" is 0
	d.point = shift + len(whole) - (len(whole+fraction) - len(digits))
	d.digits = strings.TrimRight(digits, "0")
	return d
}

// compare returns -1, 0 or 1 as a is less than, equal to or more than b.
func (a decimal) compare(b decimal) int {
	switch {
	case a.sign() != b.sign():
		return cmp.Compare(a.sign(), b.sign())
	case a.negative:
		return cmp.Or(cmp.Compare(b.point, a.point), strings.Compare(b.digits, a.digits))
	}
	return cmp.Or(cmp.Compare(a.point, b.point), strings.Compare(a.digits, b.digits))
}

func (a decimal) sign() int {
	switch {
	case a.digits == "":
		return 0
	case a.negative:
		return -1
	}
	return 1
}

// whole reports whether the number has no fraction.
func (a decimal) whole() bool { return a.point >= len(a.digits) }

// mayBeRounded reports whether the float nearest to another number of at most 20 digits may be the number.
func (a decimal) mayBeRounded() bool {
	const maxSafe = "9007199254740992" // 1 << 53
	safe := a.whole() && a.point == len(maxSafe) && a.digits < maxSafe
	return len(a.digits) > 15 && !safe || a.whole() && a.point > len(maxSafe)
}

// plain returns the number as an int64 or uint64 if it is whole and fits, else as the nearest float64. exact reports
// whether that stands for no other number: an integer, or a float64 whose shortest decimal text is the number.
func (n number) plain() (value any, exact bool) {
	if i, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		return i, true
	}
	if u, err := strconv.ParseUint(string(n), 10, 64); err == nil {
		return u, true
	}
	f, _ := strconv.ParseFloat(string(n), 64)
	return f, numberOf(f).decimal() == n.decimal()
}

// numberOf returns the number that the shortest decimal text of f stands for.
func numberOf(f float64) number { return number(strconv.FormatFloat(f, 'e', -1, 64)) }
