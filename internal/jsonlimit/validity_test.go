package jsonlimit_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"turnkeeper/internal/jsonlimit"
)

// TestWhatIsJSON changes each byte of valid texts, leaves it out, and puts others before it: the scanner must accept
// what encoding/json accepts, and no other text, also if the text comes byte by byte.
func TestWhatIsJSON(t *testing.T) {
	t.Parallel()
	others := []byte("{}[],:\"\\/ \n\x00\x1f\x7f\xc3019eE+-.utrfalsnx")
	for _, text := range []string{
		`{"a":1,"b":[true,false,null]}`, `[0,-0,10,-1.5,0.25e+3,1E-2,9e9]`, `"a\u00e9\"\\\/\b\f\n\r\t\uD83D"`,
		` [ { } , [ ] ] `, `-12.50E+07`, `{"":{"":""}}`, `"é"`, ``,
	} {
		for at := range len(text) + 1 {
			judge(t, text[:at])
			for _, b := range others {
				judge(t, text[:at]+string([]byte{b})+text[at:])
				if at < len(text) {
					judge(t, text[:at]+string([]byte{b})+text[at+1:])
				}
			}
			if at < len(text) {
				judge(t, text[:at]+text[at+1:])
			}
		}
	}
}

func judge(t *testing.T, text string) {
	t.Helper()
	whole := (jsonlimit.Limits{}).Check([]byte(text))
	s := jsonlimit.NewScanner(jsonlimit.Limits{})
	var first error
	for i := range len(text) {
		if first = s.Feed([]byte{text[i]}); first != nil {
			break
		}
	}
	if first == nil {
		first = s.End()
	}
	if want := json.Valid([]byte(text)); (whole == nil) != want || fmt.Sprint(first) != fmt.Sprint(whole) {
		t.Errorf("%q: %v, byte by byte %v; valid: %t", text, whole, first, want)
	}
}
