package inference

import (
	"strings"
	"sync/atomic"
)

// A Speech separates the content of an answer, while it streams, into what the model says and what it thinks. Providers
// feed it the text of an answer; nothing else decides what of a text is reasoning. Reasoning is:
//
//   - a block at the beginning, such as <think>…</think>, also several, also without its end;
//   - a <think> block anywhere, unless its tag is quoted or in a code block, or it has no end;
//   - everything before a closing tag that was never opened. Chat templates of some models open the block in
//     the prompt.
//
// White space before and after a block is dropped. Nobody can know of text that it stands before a closing tag until
// the tag arrives, so a Speech holds text back if the model may do so: see Habit.
type Speech struct {
	pass  func(kind DeltaKind, text string)
	habit *Habit
	tools bool // tool markup is held back

	mode   mode
	closer string // of the open block
	opener string // of the open block, if it may turn out to be text
	rest   string // not decided yet
	before byte   // the byte before rest, in a block at the beginning
	looked int    // bytes of rest without the end of the open block

	said     strings.Builder
	sent     int  // bytes of said that were passed on
	hold     bool // pass nothing on until the end
	blocks   bool // a block has ended
	lone     bool // a closing tag was never opened
	reasoned bool // the server sends reasoning apart from the text
	line     lineState
}

type mode int

const (
	modeBegin  mode = iota // nothing but white space since the beginning or a block
	modeInside             // a block at the beginning
	modeMiddle             // a block after text
	modeText
)

// A Habit is what is known about a model: whether it begins answers with reasoning whose opening tag is not part of the
// answer. The text of such a model's answers is held back until the closing tag. So is that of a model of which nothing
// is known: until its first whole answer. The zero value knows nothing. It is safe for concurrent use.
type Habit struct{ known atomic.Int32 }

const (
	habitPlain int32 = iota + 1 // text may be passed on at once
	habitLone
)

// PlainHabit returns the Habit of a model whose text may be passed on at once.
func PlainHabit() *Habit {
	h := &Habit{}
	h.known.Store(habitPlain)
	return h
}

// A tagPair encloses reasoning.
type tagPair struct {
	open, end string // in lower case
	anywhere  bool   // a block may follow text
	lone      bool   // chat templates open the block in the prompt
}

// tagPairs holds the tags that chat templates of models and prompts for reasoning use.
var tagPairs = []tagPair{
	{"<think>", "</think>", true, true},
	{"<thinking>", "</thinking>", false, false},
	{"<thought>", "</thought>", false, false},
	{"<seed:think>", "</seed:think>", true, true},
	{"<mm:think>", "</mm:think>", true, true},
	{"[think]", "[/think]", true, true},
	{"<|start_thinking|>", "<|end_thinking|>", true, true},
	{"◁think▷", "◁/think▷", false, true},
}

// maxTag is more than the length of a tag and its quotation marks, in bytes.
const maxTag = 32

// maxMiddle is the maximum length of a block after text, in bytes: its tag is text if no end comes until then.
const maxMiddle = 64 << 10

// tagStarts holds the characters with which tags in the middle of a text begin.
const tagStarts = "<["

// NewSpeech returns the Speech of one answer. It calls pass with each part of the text and of the reasoning. tools says
// whether the request declares tools: text that begins like tool markup is then passed on only by End.
func NewSpeech(habit *Habit, tools bool, pass func(kind DeltaKind, text string)) *Speech {
	if habit == nil {
		habit = PlainHabit()
	}
	return &Speech{pass: pass, habit: habit, tools: tools, hold: habit.known.Load() != habitPlain,
		line: lineState{start: true}}
}

// Reasoned records that the server sends reasoning apart from the text.
func (s *Speech) Reasoned() { s.reasoned = true }

// Shorten drops what follows the beginning of the text.
func (s *Speech) Shorten(beginning string) {
	s.said.Reset()
	s.said.WriteString(beginning)
	s.sent = min(s.sent, len(beginning))
}

// Replace takes another text in place of all that was added. What was passed on as text stays so: the answer then
// differs from what was streamed.
func (s *Speech) Replace(text string) {
	pass := func(DeltaKind, string) {}
	if s.sent == 0 {
		pass = s.pass
	}
	*s = Speech{pass: pass, habit: s.habit, tools: s.tools, hold: s.hold, reasoned: s.reasoned,
		line: lineState{start: true}}
	s.Add(text)
}

// Add adds a part of the text.
func (s *Speech) Add(text string) {
	s.rest += text
	s.decide(false)
}

// Close decides about the end of the text. cut says that the answer is not whole. Text that is held back is not passed
// on yet.
func (s *Speech) Close(cut bool) {
	s.decide(true)
	if cut && s.habit.known.Load() == habitLone && !s.blocks && !s.reasoned {
		s.retract() // the reasoning was cut before its end
		return
	}
	s.learn(cut)
}

// learn updates the habit by a whole answer.
func (s *Speech) learn(cut bool) {
	switch {
	case s.lone:
		s.habit.known.Store(habitLone)
	case !cut && (s.reasoned || s.blocks || s.said.Len() > 0):
		s.habit.known.CompareAndSwap(0, habitPlain)
	}
}

// Text returns what the model said.
func (s *Speech) Text() string { return s.said.String() }

// End passes on what was held back: as text, or as reasoning if the answer is not taken.
func (s *Speech) End(taken bool) {
	kind := DeltaText
	if !taken {
		kind = DeltaThinking
	}
	if unsent := s.said.String()[s.sent:]; unsent != "" {
		s.sent = s.said.Len()
		s.pass(kind, unsent)
	}
	if !taken && s.rest != "" {
		s.pass(kind, s.rest)
	}
}

// decide takes what is certain from the rest of the text. final says that nothing follows.
func (s *Speech) decide(final bool) {
	for s.rest != "" {
		mode, left := s.mode, len(s.rest)
		switch mode {
		case modeBegin:
			s.begin(final)
		case modeInside:
			s.inside(final)
		case modeMiddle:
			s.middle(final)
		case modeText:
			s.text(final)
		}
		if s.mode == mode && len(s.rest) == left {
			break
		}
	}
	if final && s.mode == modeMiddle { // nothing followed the tag
		s.say(s.opener)
		s.mode = modeText
	}
}

// begin decides whether the text begins with a block.
func (s *Speech) begin(final bool) {
	text := strings.TrimLeft(s.rest, " \t\r\n")
	for _, pair := range tagPairs {
		switch {
		case hasFold(text, pair.open):
			s.mode, s.closer, s.opener, s.looked = modeInside, pair.end, "", 0
			s.before, s.rest = 0, text[len(pair.open):]
			return
		case !final && startsFold(pair.open, text):
			return
		}
	}
	if s.blocks {
		s.rest = text
	}
	s.mode = modeText
}

// inside looks for the end of a block at the beginning, and passes on the reasoning before it.
func (s *Speech) inside(final bool) {
	at, end := findTag(s.rest, 0, s.before, s.closer, final)
	switch {
	case at >= 0:
		s.think(s.rest[:at])
		s.rest, s.mode, s.blocks = s.rest[end:], modeBegin, true
	case final:
		s.think(s.rest)
		s.rest, s.blocks = "", true
	default:
		if keep := runeStart(s.rest, len(s.rest)-maxTag); keep > 0 {
			s.think(s.rest[:keep])
			s.before, s.rest = s.rest[keep-1], s.rest[keep:]
		}
	}
}

// middle looks for the end of a block after text. A block without an end is text.
func (s *Speech) middle(final bool) {
	at, end := findTag(s.rest, s.looked, 0, s.closer, final)
	switch {
	case at >= 0:
		s.think(s.rest[:at])
		s.rest, s.mode, s.blocks = s.rest[end:], modeText, true
	case final, len(s.rest) > maxMiddle:
		s.mode = modeText
		s.say(s.opener)
	default:
		s.looked = max(0, len(s.rest)-maxTag)
	}
}

// text takes text up to the next tag.
func (s *Speech) text(final bool) {
	for s.rest != "" && s.mode == modeText {
		at := strings.IndexAny(s.rest, tagStarts)
		if i := strings.Index(s.rest, "◁"); i >= 0 && (at < 0 || i < at) {
			at = i
		}
		if at < 0 {
			at = len(s.rest)
		}
		if at > 0 {
			s.say(s.rest[:at])
			s.rest = s.rest[at:]
			continue
		}
		if !final && len(s.rest) <= maxTag && s.mayBeTag() {
			return
		}
		if !s.tag() {
			n := 1
			if strings.HasPrefix(s.rest, "◁") {
				n = len("◁")
			}
			s.hold = s.hold || s.tools && s.markup()
			s.say(s.rest[:n])
			s.rest = s.rest[n:]
		}
	}
}

// tag takes a tag at the beginning of the rest, if there is one that counts.
func (s *Speech) tag() bool {
	for _, pair := range tagPairs {
		switch {
		case pair.lone && hasFold(s.rest, pair.end) && !quoted(s.line.last, s.rest[len(pair.end):]):
			s.retract()
			s.rest, s.mode, s.blocks, s.lone = s.rest[len(pair.end):], modeBegin, true, true
			return true
		case pair.anywhere && hasFold(s.rest, pair.open) && !s.line.fenced && !quoted(s.line.last,
			s.rest[len(pair.open):]):
			s.opener, s.rest = s.rest[:len(pair.open)], s.rest[len(pair.open):]
			s.mode, s.closer, s.looked = modeMiddle, pair.end, 0
			return true
		}
	}
	return false
}

// mayBeTag reports whether the rest may be the beginning of a tag, or a tag whose quotation mark is still to come.
func (s *Speech) mayBeTag() bool {
	for _, pair := range tagPairs {
		for _, tag := range []string{pair.open, pair.end} {
			if startsFold(tag, s.rest) || isQuote(s.line.last) && len(s.rest) == len(tag) && hasFold(s.rest, tag) {
				return true
			}
		}
	}
	return s.tools && mayBeMarkup(s.rest)
}

// markup reports whether tool markup may begin here.
func (s *Speech) markup() bool {
	return !s.line.fenced && !isQuote(s.line.last) && beginsMarkup(s.rest, s.line.start)
}

// say adds text, and passes it on unless text is held back.
func (s *Speech) say(text string) {
	s.line.add(text)
	s.said.WriteString(text)
	if !s.hold {
		s.sent += len(text)
		s.pass(DeltaText, text)
	}
}

func (s *Speech) think(text string) {
	if text != "" {
		s.pass(DeltaThinking, text)
	}
}

// retract makes all text so far reasoning. If a part of it was passed on as text, the rest of the answer is held back:
// the answer then differs from what was streamed.
func (s *Speech) retract() {
	text := s.said.String()
	s.said.Reset()
	s.hold, s.sent = s.sent > 0, 0
	s.line = lineState{start: true}
	s.think(text)
}

// A lineState is the position in a text.
type lineState struct {
	start  bool   // nothing but white space since the last line break
	fenced bool   // in a code block
	marks  string // first characters of the line, while they may open or close a code block
	over   bool   // marks has all of them
	last   byte
}

func (l *lineState) add(text string) {
	for i := range len(text) {
		b := text[i]
		l.last = b
		if b == '\n' {
			*l = lineState{start: true, fenced: l.fenced, last: b}
			continue
		}
		space := b == ' ' || b == '\t' || b == '\r'
		if !l.over && (!space || l.marks != "") {
			l.marks += string(b)
			if l.marks == "```" || l.marks == "~~~" {
				l.fenced = !l.fenced
			}
			l.over = len(l.marks) >= 3 || b != '`' && b != '~'
		}
		l.start = l.start && space
	}
}

// findTag returns the position of a tag that is not quoted, and of its end; -1: there is none, or it may be quoted.
// before is the byte before the text.
func findTag(text string, from int, before byte, tag string, final bool) (at, end int) {
	for at = from; ; at++ {
		i := indexFold(text[at:], tag)
		if i < 0 {
			return -1, 0
		}
		at += i
		end = at + len(tag)
		if at > 0 {
			before = text[at-1]
		}
		switch {
		case end == len(text) && !final && isQuote(before):
			return -1, 0
		case !quoted(before, text[end:]):
			return at, end
		}
	}
}

// quoted reports whether a tag stands between two equal quotation marks.
func quoted(before byte, after string) bool {
	return isQuote(before) && after != "" && after[0] == before
}

func isQuote(b byte) bool { return b == '"' || b == '\'' || b == '`' }

// hasFold reports whether a text begins with a tag in any case. The tag is in lower case.
func hasFold(text, tag string) bool { return len(text) >= len(tag) && lower(text[:len(tag)]) == tag }

// startsFold reports whether a tag begins with a text, which is shorter, in any case.
func startsFold(tag, text string) bool {
	return len(text) < len(tag) && lower(text) == tag[:len(text)]
}

func indexFold(text, tag string) int { return strings.Index(lower(text), tag) }

// lower returns a text with A to Z in lower case, which keeps its length.
func lower(text string) string {
	b := []byte(text)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] += 'a' - 'A'
		}
	}
	return string(b)
}

// runeStart returns the position of the character that at is in.
func runeStart(text string, at int) int {
	for at > 0 && text[at]&0xC0 == 0x80 {
		at--
	}
	return at
}
