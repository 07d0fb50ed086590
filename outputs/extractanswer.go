package outputs

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"turnkeeper/internal/jsonlimit"
)

// Claims are the passages that a model claims to have found in a chunk.
type Claims struct {
	Texts      []string // the best first; at most MaxClaims
	Confidence float64  // 0 to 1
}

// ErrNoAnswer is the error of an answer without the requested JSON.
var ErrNoAnswer = errors.New("the answer contains no JSON object of the requested form")

// ReadClaims parses the answer to a SearchPrompt. It ignores text around the JSON, such as a
// code fence or a sentence.
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

// ReadPicks parses the answer to a RankPrompt of so many snippets. It ignores invalid and
// repeated indices.
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

// maxObjects is the maximum number of braces in an answer that are tried as the beginning
// of an object.
const maxObjects = 200

// objects returns the JSON objects in a text, at any position.
func objects(text string) func(yield func(json.RawMessage) bool) {
	return func(yield func(json.RawMessage) bool) {
		for range maxObjects {
			i := strings.IndexByte(text, '{')
			if i < 0 {
				return
			}
			var object json.RawMessage
			if json.NewDecoder(strings.NewReader(text[i:])).Decode(&object) == nil &&
				jsonlimit.ModelText.Check(object) == nil && !yield(object) {
				return
			}
			text = text[i+1:]
		}
	}
}

// A claim is decoded from a string, or from an object with one of the keys that models use.
// Any other JSON gives an empty claim, which is ignored later.
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

// A pick is decoded from an index, or from an object with one.
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

// A share is decoded from a number or a string with a number, limited to 0 to 1. Any other
// JSON gives 0.
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
