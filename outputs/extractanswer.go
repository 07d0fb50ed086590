package outputs

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"
)

// Claims are what a model says it has found in a chunk.
type Claims struct {
	Texts      []string // the best first; at most MaxClaims
	Confidence float64  // 0 to 1
}

// ErrNoAnswer is for what a model said in place of the JSON it was asked for.
var ErrNoAnswer = errors.New("the answer has no JSON object of the form asked for")

// ReadClaims reads the answer to a SearchPrompt. What stands around the JSON,
// such as a fence or a sentence, is passed over.
func ReadClaims(answer string) (Claims, error) {
	for object := range objects(answer) {
		var said struct {
			Snippets   *[]claim `json:"snippets"`
			Confidence share    `json:"confidence"`
		}
		if json.Unmarshal(object, &said) != nil || said.Snippets == nil {
			continue
		}
		claims := Claims{Confidence: float64(said.Confidence)}
		for _, c := range *said.Snippets {
			if len(claims.Texts) == MaxClaims {
				break
			}
			claims.Texts = append(claims.Texts, string(c))
		}
		return claims, nil
	}
	return Claims{}, ErrNoAnswer
}

// A Pick is a snippet that a model chose.
type Pick struct {
	Index      int
	Confidence float64 // 0 to 1
}

// ReadPicks reads the answer to a RankPrompt of so many snippets. An index that
// is none of theirs, and one that was named before, are passed over.
func ReadPicks(answer string, snippets int) ([]Pick, error) {
	for object := range objects(answer) {
		var said struct {
			Picks *[]pick `json:"picks"`
		}
		if json.Unmarshal(object, &said) != nil || said.Picks == nil {
			continue
		}
		var picks []Pick
		named := map[int]bool{}
		for _, p := range *said.Picks {
			if p.Index < 0 || p.Index >= snippets || named[p.Index] {
				continue
			}
			named[p.Index] = true
			picks = append(picks, Pick(p))
		}
		return picks, nil
	}
	return nil, ErrNoAnswer
}

// maxObjects is how many braces of an answer are tried as the beginning of what
// was asked for.
const maxObjects = 200

// objects are the JSON objects in a text, wherever they begin.
func objects(text string) func(yield func(json.RawMessage) bool) {
	return func(yield func(json.RawMessage) bool) {
		for range maxObjects {
			i := strings.IndexByte(text, '{')
			if i < 0 {
				return
			}
			var object json.RawMessage
			if json.NewDecoder(strings.NewReader(text[i:])).Decode(&object) == nil && !yield(object) {
				return
			}
			text = text[i+1:]
		}
	}
}

// A claim is a string, or an object that has it under a name models use. It is
// empty for anything else, a number say, and then found nowhere.
type claim string

func (c *claim) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*c = claim(text)
		return nil
	}
	var object struct{ Text, Snippet, Quote string }
	if json.Unmarshal(data, &object) == nil {
		*c = claim(cmp.Or(object.Text, object.Snippet, object.Quote))
	}
	return nil
}

// A pick is an index, or an object with one.
type pick Pick

func (p *pick) UnmarshalJSON(data []byte) error {
	p.Index = -1
	var index *int
	if json.Unmarshal(data, &index) == nil {
		if index != nil {
			p.Index = *index
		}
		return nil
	}
	var object struct {
		Index      *int  `json:"index"`
		Confidence share `json:"confidence"`
	}
	if json.Unmarshal(data, &object) == nil && object.Index != nil {
		p.Index, p.Confidence = *object.Index, float64(object.Confidence)
	}
	return nil
}

// A share is a number from 0 to 1, also as a string; anything else is 0, or the
// nearer end.
type share float64

func (s *share) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		data = []byte(text)
	}
	var number float64
	if json.Unmarshal(data, &number) != nil {
		number = 0
	}
	*s = share(min(max(number, 0), 1))
	return nil
}
