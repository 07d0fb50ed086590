package httpapi

import (
	"net/http"
	"testing"
)

func TestBearer(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		values []string
		secret string
		given  bool
		wrong  bool
	}{
		{"none", nil, "", false, false},
		{"a token", []string{"Bearer tk_1"}, "tk_1", true, false},
		{"the scheme in other letters", []string{"bEARER tk_1"}, "tk_1", true, false},
		{"blanks around it", []string{"Bearer   tk_1 "}, "tk_1", true, false},
		{"blanks within it", []string{"Bearer tk_1 tk_2"}, "tk_1 tk_2", true, false},
		{"no token", []string{"Bearer"}, "", false, true},
		{"a blank token", []string{"Bearer  "}, "", false, true},
		{"nothing", []string{""}, "", false, true},
		{"no scheme", []string{"tk_1"}, "", false, true},
		{"another scheme", []string{"Basic tk_1"}, "", false, true},
		{"a longer scheme", []string{"Bearers tk_1"}, "", false, true},
		{"two", []string{"Bearer tk_1", "Bearer tk_1"}, "", false, true},
		{"two, the second empty", []string{"Bearer tk_1", ""}, "", false, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			secret, given, err := bearer(http.Header{"Authorization": test.values})
			if secret != test.secret || given != test.given || (err != nil) != test.wrong {
				t.Errorf("%q, given %v, %v", secret, given, err)
			}
		})
	}
}
