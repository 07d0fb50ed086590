package agentdef_test

import (
	"strings"
	"testing"

	"turnkeeper/agentdef"
)

func TestQuiet(t *testing.T) {
	for _, test := range []struct {
		word, answer string
		quiet        bool
	}{
		{"Nothing new.", "Nothing new.", true},
		{"Nothing new.", "\n**nothing NEW**\n", true},
		{"Nothing new.", "\"Nothing new\"", true},
		{"NOTHING", "NOTHING, but the price fell.", false},
		{"NOTHING", "", false},
		{"", "", false},
		{"", "...", false},
		{"Nichts Neues", "nichts neues!", true},
	} {
		d := &agentdef.Definition{QuietReply: test.word}
		if d.Quiet(test.answer) != test.quiet {
			t.Errorf("with %q, is %q quiet? %t", test.word, test.answer, !test.quiet)
		}
	}
}

func TestQuietReplyMustBeAWord(t *testing.T) {
	for _, bad := range []string{`""`, `"..."`, `"a\nb"`, strings.Repeat("a", 201), "[a]"} {
		_, err := agentdef.Parse("a.md", []byte("---\ndescription: d\nquiet_reply: "+bad+"\n---\nGo.\n"))
		if err == nil || !strings.Contains(err.Error(), "a.md:3: quiet_reply") {
			t.Errorf("quiet_reply: %s gives %v", bad, err)
		}
	}
}
